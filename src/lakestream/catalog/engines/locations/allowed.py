"""Where the tables and views of engines may lie, and what of that is a table's own.

Engines choose locations. Theirs are below `<bucket>/warehouse`, or below what the operator listed; the rest of the
bucket is ours: WAL, and `<bucket>/tables`, one folder for each topic. A table's own location is a folder that no other
table has (`metadata.places`), and everything that the catalog reads, writes or deletes for it is in there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetLocationUpdate, TableUpdate

from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.errors import StorageError, TableRefused
from lakestream.metadata.topics.tables import detached_name
from lakestream.objects.paths import is_inside, is_really_inside, resolved, same_form

PATH_PROPERTIES: Final = (
    "write.metadata.path",
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


class Locations:
    """`listed`: folders beside the warehouse that the operator allows."""

    def __init__(self, bucket_url: str, listed: Sequence[str] = ()) -> None:
        bucket = bucket_url.rstrip("/")
        self.warehouse: Final = f"{bucket}/warehouse"
        self._bucket = bucket
        self._streams = f"{bucket}/tables"
        self._open = (self.warehouse, *listed)

    def check_location(self, location: str) -> None:
        """Of a table or view that an engine makes or moves. Raises `TableRefused`. Blocking."""
        inside = any(is_really_inside(location, place) for place in self._open)
        if not inside or self._covers_ours(location) or not is_inside(f"{location}/file", location):
            raise TableRefused(
                f"{_shortened(location)} cannot be a location: tables and views go below {' or '.join(self._open)};"
                " an operator may allow other places with the setting http.locations"
            )

    def _covers_ours(self, location: str) -> bool:
        """Whether there is anything of ours in there, or it in that, although a list may name a place above."""
        place, bucket, warehouse = resolved(location), resolved(self._bucket), resolved(self.warehouse)
        return (
            place == bucket
            or is_inside(bucket, place)
            or (is_inside(place, bucket) and not is_inside(place, warehouse))
        )

    def check_registered(self, metadata_location: str) -> None:
        """Before a metadata file is read that a client names. Raises `TableRefused`. Blocking."""
        if not any(is_really_inside(metadata_location, place) for place in (*self._open, self._streams)):
            raise TableRefused(
                f"{_shortened(metadata_location)} is not read: it is not below"
                f" {' or '.join((*self._open, self._streams))}; an operator may allow other places with the setting"
                " http.locations"
            )

    def is_streams(self, location: str, table_id: UUID) -> bool:
        """Whether this is the folder that the topic with this UUID has or had: it needs no claim, because nobody else
        can have it. Blocking."""
        name = same_form(location).rsplit("/", 1)[-1]
        return (
            name.endswith(detached_name("", table_id))
            and is_inside(location, self._streams)
            and resolved(location) == f"{resolved(self._streams)}/{name}"
        )

    def is_ours(self, metadata_location: str) -> bool:
        """Whether the metadata of a table is in a topic's folder, by its name alone."""
        return is_inside(metadata_location, self._streams)


def moved_to(metadata: TableMetadata, updates: Iterable[TableUpdate]) -> str | None:
    """Where a commit moves the table; None: it stays."""
    wanted = [update.location for update in updates if isinstance(update, SetLocationUpdate)]
    return wanted[-1] if wanted and same_form(wanted[-1]) != same_form(metadata.location) else None


def check_paths(base: Mapping[str, str], properties: Mapping[str, str], location: str) -> None:
    """That properties which say where to write keep to the table's own location. Raises `TableRefused`. Blocking."""
    for name in PATH_PROPERTIES:
        path = properties.get(name)
        if path and path != base.get(name) and not _keeps_to(path, location):
            raise TableRefused(
                f"{name}={_shortened(path)} is outside of the table's location {location}: its files belong there;"
                " leave it out, or name a folder in there"
            )


def check_own(metadata: TableMetadata, metadata_location: str) -> None:
    """The same for a table that is there already: its metadata is in its own location, and so is what that names but
    for files of rows. Raises `TableRefused`. Blocking."""
    check_paths({}, metadata.properties, metadata.location)
    for path in (metadata_location, *sorted(_named(metadata))):
        if not is_really_inside(path, metadata.location):
            raise _elsewhere(path, metadata.location)


def _keeps_to(path: str, location: str) -> bool:
    return same_form(path) == same_form(location) or is_really_inside(path, location)


def check_brought(index: ManifestIndex, base: TableMetadata | None, new: TableMetadata) -> None:
    """That a commit brings manifests, their lists and statistics of the table's own location only: others are another
    table's, and would go when this one's snapshots go. Nothing outside of it is read. Raises `TableRefused`.
    Blocking."""
    known = set() if base is None else _named(base)
    home = new.location
    for path in sorted(_named(new) - known):
        if not is_really_inside(path, home):
            raise _elsewhere(path, home)
    known_lists = set() if base is None else {snapshot.manifest_list for snapshot in base.snapshots}
    for manifest_list in {snapshot.manifest_list for snapshot in new.snapshots} - known_lists:
        try:
            manifests = [manifest.manifest_path for manifest in index.manifests(manifest_list)]
        except StorageError as error:
            raise TableRefused(f"what the commit brings cannot be judged: {error}") from error
        strange = [path for path in manifests if not is_inside(path, home)]
        if strange and base is not None:
            kept = (index.manifests(path) for path in known_lists if is_inside(path, base.location))
            before = {manifest.manifest_path for found in kept for manifest in found}
            strange = [path for path in strange if path not in before]
        if strange:
            raise _elsewhere(strange[0], home)


def _named(metadata: TableMetadata) -> set[str]:
    statistics = (*metadata.statistics, *metadata.partition_statistics)
    return {snapshot.manifest_list for snapshot in metadata.snapshots} | {each.statistics_path for each in statistics}


def _elsewhere(path: str, home: str) -> TableRefused:
    return TableRefused(
        f"{_shortened(path)} is not in the table's location {home}: a file belongs to one table, so its"
        " metadata, manifests, manifest lists and statistics are in there"
    )


def _shortened(path: str) -> str:
    return path if len(path) <= 300 else path[:300] + "…"
