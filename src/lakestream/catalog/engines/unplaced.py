"""Commits of engines that only add rows without offsets to the table of a topic: records that are still to be produced.

They are recognised by what their new manifests say, and judged: whatever else the commit would do, it is refused, for
none of it can be done together with an append to the log. The rows themselves are looked at by whoever takes them
(`TakeRows`). The snapshots that the engine made are never the table's: its rows get there through the log.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
)

from lakestream.catalog.manifests.index import ManifestIndex, read_entries
from lakestream.errors import CorruptObject, TableRefused
from lakestream.objects.paths import is_inside, is_really_inside
from lakestream.table.parquet.unplaced import UnplacedFile
from lakestream.table.schema import shape_of

_ALONE: Final = "Rows without _offset become records of the stream, which cannot be one step with anything else"


class Unplaced(NamedTuple):
    """`snapshot_id`: of the commit, which is the same when the engine sends it again. `made`: every file that the
    engine made for it, those with the rows among them."""

    topic_id: UUID
    snapshot_id: int
    files: tuple[UnplacedFile, ...]
    made: tuple[str, ...]


class TakeRows(Protocol):
    """Makes records of rows."""

    async def is_taken(self, topic_id: UUID, snapshot_id: int) -> bool:
        """Whether this commit was taken before. If so all of it is in the log now, and in the table unless that cannot
        be brought up to date. Raises `Unavailable` if that is not known."""
        ...

    async def take(self, rows: Unplaced) -> None:
        """Returns when all rows are records, once, however often the same commit is taken; they are in the table unless
        that cannot be brought up to date. Raises `TableRefused` with a sentence if there is a row that cannot be one:
        then none is. `Unavailable`: the outcome is not known; taking it again tells."""
        ...


def appended(metadata: TableMetadata, updates: Sequence[TableUpdate]) -> list[Snapshot]:
    """The snapshots that a commit puts on main, the newest last; none if it does not move main to a new one."""
    moved = [each for each in updates if isinstance(each, SetSnapshotRefUpdate) and each.ref_name == MAIN_BRANCH]
    added = [each.snapshot for each in updates if isinstance(each, AddSnapshotUpdate)]
    known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    if not moved or not added or added[-1].snapshot_id != moved[-1].snapshot_id or added[-1].snapshot_id in known:
        return []
    return added


def placing(requirements: Iterable[TableRequirement]) -> list[TableRequirement]:
    """Without what an append to a log has no need of: that nobody else has appended since."""
    return [each for each in requirements if not (isinstance(each, AssertRefSnapshotId) and each.ref == MAIN_BRANCH)]


def find_unplaced(
    io: FileIO, index: ManifestIndex, base: TableMetadata, updates: Sequence[TableUpdate]
) -> Unplaced | None:
    """None: no row of the commit lacks its offset, by what its manifests say. Raises `TableRefused` for one that has
    such rows and does anything else. Blocking."""
    snapshots = appended(base, updates)
    home = base.location
    if not snapshots or not all(is_really_inside(snapshot.manifest_list, home) for snapshot in snapshots):
        return None
    ids = {snapshot.snapshot_id for snapshot in snapshots}
    try:
        manifests = [each for each in index.manifests(snapshots[-1].manifest_list) if each.added_snapshot_id in ids]
        if not all(is_inside(manifest.manifest_path, home) for manifest in manifests):
            return None
        entries = [entry for each in manifests for entry in read_entries(io, each, live=False)]
    except CorruptObject as error:
        raise TableRefused(f"what the commit brings cannot be judged: {error}") from error
    added = [entry.data_file for entry in entries if _is_added(entry)]
    offset = shape_of(base.properties).field_id("_offset")
    unplaced = [file for file in added if _missing(file, offset)]
    if not unplaced:
        return None
    _check_alone(updates, snapshots, manifests, entries)
    for file in added:
        _check_file(file, offset, home)
    made = {file.file_path for file in added} | {manifest.manifest_path for manifest in manifests}
    made |= {snapshot.manifest_list for snapshot in snapshots}
    made |= {each.statistics.statistics_path for each in updates if isinstance(each, SetStatisticsUpdate)}
    return Unplaced(
        topic_id=base.table_uuid,
        snapshot_id=snapshots[-1].snapshot_id,
        files=tuple(UnplacedFile(file.file_path, file.record_count) for file in added),
        made=tuple(sorted(path for path in made if is_inside(path, home))),
    )


def _is_added(entry: ManifestEntry) -> bool:
    return entry.status == ManifestEntryStatus.ADDED and entry.data_file.content == DataFileContent.DATA


def _missing(file: IcebergFile, offset: int) -> int:
    """How many of its rows have no offset, as far as the manifest tells. A file that lacks the column has neither nulls
    nor bounds of it."""
    nulls, bounds = file.null_value_counts or {}, file.lower_bounds or {}
    if offset in nulls:
        return int(nulls[offset])
    return 0 if offset in bounds else int(file.record_count)


def _check_alone(
    updates: Sequence[TableUpdate],
    snapshots: Sequence[Snapshot],
    manifests: Sequence[ManifestFile],
    entries: Sequence[ManifestEntry],
) -> None:
    others = [
        each.action
        for each in updates
        if not isinstance(each, AddSnapshotUpdate | SetSnapshotRefUpdate | SetStatisticsUpdate)
    ]
    if others:
        raise TableRefused(f"the commit adds rows and does {', '.join(others)}. {_ALONE}: commit them alone")
    for snapshot in snapshots:
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation is not None and operation != Operation.APPEND:
            raise TableRefused(
                f"the commit adds rows and takes others away ({operation.value}). {_ALONE}: DELETE first, then INSERT"
            )
    if any(entry.status == ManifestEntryStatus.DELETED for entry in entries) or any(
        entry.data_file.content != DataFileContent.DATA for entry in entries
    ):
        raise TableRefused(f"the commit adds rows and takes others away. {_ALONE}: DELETE first, then INSERT")
    branches = [each.ref_name for each in updates if isinstance(each, SetSnapshotRefUpdate)]
    if branches != [MAIN_BRANCH] * len(branches):
        raise TableRefused(f"the commit adds rows and moves another branch. {_ALONE}: commit them alone")


def _check_file(file: IcebergFile, offset: int, home: str) -> None:
    if file.file_format != FileFormat.PARQUET:
        raise TableRefused(
            f"{file.file_path} is {file.file_format.value}, and rows are read from Parquet only: set"
            " write.format.default=parquet"
        )
    if not is_inside(file.file_path, home):
        raise TableRefused(
            f"{file.file_path} is outside of the table's folder {home}, where its files are looked for: let the engine"
            " write there (unset write.data.path)"
        )
    missing = _missing(file, offset)
    if missing != file.record_count:
        raise TableRefused(
            f"{file.file_path} has an _offset in {file.record_count - missing} of {file.record_count} rows: rows"
            " without one become records, rows with one are there already. Leave _offset out of the INSERT"
        )
