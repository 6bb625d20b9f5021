"""The table of a topic through its REST catalog: one metadata, the frontier in it, its live files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from requests.exceptions import RequestException

from lakestream.catalog.manifests.deletions import placed
from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.catalog.sealed import SealedIO
from lakestream.errors import RequestError, StorageError, Unavailable
from lakestream.model import DataFile, PositionDeletes
from lakestream.table.schema import FRONTIER_PROPERTY, TOPIC_ID_PROPERTY, parse_frontier, shape_of
from lakestream.table.shape import RAW, TableShape

NO_FRONTIER: Final = ()


@dataclass(frozen=True, slots=True)
class TableView:
    """`location` is None while the topic has no table: then nothing is below the frontier."""

    location: str | None
    frontier: tuple[int, ...]
    files: tuple[DataFile, ...]
    deletes: tuple[PositionDeletes, ...]


class ViewClient:
    """For planning; blocking. Manifests are read once, however many views name them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        if "uri" not in settings:
            raise RequestError('say where the catalog is: .option("uri", "http://host:port/iceberg")')
        self._settings = settings
        self._catalog: RestCatalog | None = None
        self._index: ManifestIndex | None = None

    def load(self, topic_id: UUID, names: Sequence[str], snapshot_id: int | None = None) -> TableView:
        """The present view of the topic's table, the first of these names that is it; or that of a snapshot of it, with
        the frontier it had.

        Raises:
            RequestError: there is no such snapshot.
            StorageError: rows of the table cannot be told for sure.
            Unavailable: the catalog does not answer.
        """
        name, table = self._find(topic_id, names)
        if table is None:
            if snapshot_id is not None:
                raise RequestError(f"the topic has no table {' or '.join(names)} yet, so there is no snapshot of it")
            return TableView(None, NO_FRONTIER, (), ())
        snapshot = table.metadata.current_snapshot()
        frontier = table.properties.get(FRONTIER_PROPERTY)
        if snapshot_id is not None:
            snapshot = table.metadata.snapshot_by_id(snapshot_id)
            if snapshot is None:
                raise RequestError(f"table {name} has no snapshot {snapshot_id}: it never had, or it is expired")
            frontier = _frontier_of(table, snapshot)
        files, deletes = self._files(name, table, snapshot)
        return TableView(table.location(), _parsed(name, frontier), files, deletes)

    def shape(self, topic_id: UUID, names: Sequence[str]) -> TableShape:
        """The columns of the topic's table, or those that one would have. Raises as `load` does."""
        _, table = self._find(topic_id, names)
        return RAW if table is None else shape_of(table.properties)

    def _find(self, topic_id: UUID, names: Sequence[str]) -> tuple[str, Table | None]:
        found = ((name, table) for name in names if (table := self._load(name)) is not None)
        mine = ((name, table) for name, table in found if table.properties.get(TOPIC_ID_PROPERTY) == str(topic_id))
        return next(mine, ("", None))

    def _load(self, name: str) -> Table | None:
        try:
            if self._catalog is None:
                self._catalog = RestCatalog("lakestream", **self._settings)
            found: Table = self._catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except (RESTError, RequestException) as error:
            raise Unavailable(
                f"the catalog at {self._settings['uri']} does not answer as it should: {error}"
            ) from error
        return found

    def _files(
        self, name: str, table: Table, snapshot: Snapshot | None
    ) -> tuple[tuple[DataFile, ...], tuple[PositionDeletes, ...]]:
        if snapshot is None:
            return (), ()
        if self._index is None:
            self._index = ManifestIndex(SealedIO(dict(table.io.properties)))
        shape = shape_of(table.properties)
        found = [self._index.get(manifest, shape) for manifest in self._index.manifests(snapshot.manifest_list)]
        files = tuple(file for manifest in found for file in manifest.files)
        deletes = placed(files, [file for manifest in found for file in manifest.deletes])
        troubles = [file.trouble for file in files] + [file.trouble for file in deletes]
        if any(troubles):
            raise StorageError(f"table {name} cannot be read as a stream: {next(filter(None, troubles))}")
        return files, deletes


def _parsed(name: str, frontier: str | None) -> tuple[int, ...]:
    try:
        found = parse_frontier(frontier or "")
    except ValueError as error:
        raise StorageError(f"table {name}: {frontier!r} is no frontier") from error
    if not found:
        raise StorageError(f"table {name} or its snapshot does not tell its frontier ({FRONTIER_PROPERTY})")
    return found


def _frontier_of(table: Table, snapshot: Snapshot) -> str | None:
    """A snapshot of an engine that does not know frontiers has its parent's: only ours move it."""
    found: Snapshot | None = snapshot
    while found is not None:
        summary = found.summary.additional_properties if found.summary is not None else {}
        if FRONTIER_PROPERTY in summary:
            return summary[FRONTIER_PROPERTY]
        found = table.metadata.snapshot_by_id(found.parent_snapshot_id) if found.parent_snapshot_id else None
    return None
