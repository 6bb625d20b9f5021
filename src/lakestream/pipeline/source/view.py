"""The table of a topic through its REST catalog: one metadata, the frontier in it, its live files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from requests.exceptions import RequestException

from lakestream.catalog.index import ManifestIndex
from lakestream.catalog.sealed import SealedIO
from lakestream.errors import RequestError, StorageError, Unavailable
from lakestream.model import DataFile, PositionDeletes
from lakestream.table.schema import FRONTIER_PROPERTY, TOPIC_ID_PROPERTY, parse_frontier

NO_FRONTIER: Final = ()


@dataclass(frozen=True, slots=True)
class TableView:
    """`location` is None while the topic has no table: then nothing is below the frontier."""

    location: str | None
    topic_id: UUID | None
    frontier: tuple[int, ...]
    files: tuple[DataFile, ...]
    deletes: tuple[PositionDeletes, ...]


class ViewClient:
    """For planning; blocking. Manifests are read once, however many views name them."""

    def __init__(self, table: str, settings: Mapping[str, str]) -> None:
        if "uri" not in settings:
            raise RequestError('say where the catalog is: .option("uri", "http://host:port/iceberg")')
        self._table = table
        self._settings = settings
        self._catalog: RestCatalog | None = None
        self._index: ManifestIndex | None = None

    def load(self, snapshot_id: int | None = None) -> TableView:
        """The present view, or that of a snapshot with the frontier it had.

        Raises:
            RequestError: there is no such snapshot, or the table is no stream's.
            StorageError: rows of the table cannot be told for sure.
            Unavailable: the catalog does not answer.
        """
        table = self._load()
        if table is None:
            if snapshot_id is not None:
                raise RequestError(f"there is no table {self._table} yet, so it has no snapshot {snapshot_id}")
            return TableView(None, None, NO_FRONTIER, (), ())
        try:
            topic_id = UUID(table.properties.get(TOPIC_ID_PROPERTY, ""))
        except ValueError as error:
            raise RequestError(
                f"table {self._table} is not the table of a topic: read it as any Iceberg table"
            ) from error
        snapshot = table.metadata.current_snapshot()
        frontier = table.properties.get(FRONTIER_PROPERTY)
        if snapshot_id is not None:
            snapshot = table.metadata.snapshot_by_id(snapshot_id)
            if snapshot is None:
                raise RequestError(f"table {self._table} has no snapshot {snapshot_id}: it never had, or it is expired")
            frontier = _frontier_of(table, snapshot)
        files, deletes = self._files(table, snapshot)
        return TableView(table.location(), topic_id, self._parse(frontier), files, deletes)

    def _load(self) -> Table | None:
        try:
            if self._catalog is None:
                self._catalog = RestCatalog("lakestream", **self._settings)
            found: Table = self._catalog.load_table(self._table)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except (RESTError, RequestException) as error:
            raise Unavailable(
                f"the catalog at {self._settings['uri']} does not answer as it should: {error}"
            ) from error
        return found

    def _files(
        self, table: Table, snapshot: Snapshot | None
    ) -> tuple[tuple[DataFile, ...], tuple[PositionDeletes, ...]]:
        if snapshot is None:
            return (), ()
        if self._index is None:
            self._index = ManifestIndex(SealedIO(dict(table.io.properties)))
        found = [self._index.get(manifest) for manifest in self._index.manifests(snapshot.manifest_list)]
        files = tuple(file for manifest in found for file in manifest.files)
        deletes = tuple(file for manifest in found for file in manifest.deletes)
        troubles = [file.trouble for file in files] + [file.trouble for file in deletes]
        if any(troubles):
            raise StorageError(f"table {self._table} cannot be read as a stream: {next(filter(None, troubles))}")
        return files, deletes

    def _parse(self, frontier: str | None) -> tuple[int, ...]:
        try:
            found = parse_frontier(frontier or "")
        except ValueError as error:
            raise StorageError(f"table {self._table}: {frontier!r} is no frontier") from error
        if not found:
            raise StorageError(f"table {self._table} or its snapshot does not tell its frontier ({FRONTIER_PROPERTY})")
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
