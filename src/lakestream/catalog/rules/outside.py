"""What an engine may do to the table of a living topic, judged by its metadata and manifests alone. Blocking.

Rows come from the log only. An engine may move, update or delete them: so what a commit adds to main must fit into
what it takes away, by offsets and by number. Data files are not opened here (`judged` looks at the rows), and of the
manifests only those are read that the commit brought or dropped. What main once was it may be again: a rollback is a
delete, and undoing one gives offsets back to the records they belonged to. Branches and tags are the owner's.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.catalog.rules.streams import check_required
from lakestream.errors import CorruptObject, TableRefused
from lakestream.model import DataFile, PositionDeletes
from lakestream.objects.paths import is_inside
from lakestream.table.parquet.compression import COMPRESSION_PROPERTIES, chosen
from lakestream.table.schema import (
    FRONTIER_PROPERTY,
    TOPIC_PROPERTY,
    iceberg_schema,
    parse_frontier,
    shape_of,
    stream_spec,
)
from lakestream.table.shape import TableShape

_KEPT_PROPERTIES: Final = ("write.metadata.path",)
_PRODUCE: Final = "produce new records to the topic instead"


def check_outside(index: ManifestIndex, base: TableMetadata, new: TableMetadata) -> Sequence[DataFile]:
    """The files that main gains. Raises `TableRefused` with a sentence that says why, and what to do instead."""
    if new.properties.get(FRONTIER_PROPERTY) != base.properties.get(FRONTIER_PROPERTY):
        raise TableRefused(f"{FRONTIER_PROPERTY} is moved by the pipeline alone: leave it out of the commit")
    for name in _KEPT_PROPERTIES:
        if new.properties.get(name) != base.properties.get(name):
            raise TableRefused(f"property {name} of a stream's table cannot change: its files are looked for there")
    if new.properties.get(TOPIC_PROPERTY) != base.properties.get(TOPIC_PROPERTY):
        raise TableRefused(f"{TOPIC_PROPERTY} says whose table this is: leave it out of the commit")
    _check_compression(base.properties, new.properties)
    shape = shape_of(base.properties)
    _check_spec(new.spec(), shape)
    check_required(base.schema(), new.schema(), shape)
    _check_added_columns(new.schema(), shape)
    return _check_rows(index, base, new, shape)


def _check_compression(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    if all(before.get(name) == after.get(name) for name in COMPRESSION_PROPERTIES):
        return
    try:
        chosen(after)
    except ValueError as error:
        raise TableRefused(str(error)) from error


def _check_spec(spec: PartitionSpec, shape: TableShape) -> None:
    if {_what(field) for field in stream_spec(shape).fields} <= {_what(field) for field in spec.fields}:
        return
    raise TableRefused(
        "the default partition spec of a stream's table keeps identity(_stream_partition) and"
        " truncate(1048576, _offset), so that a rewrite stays inside a window of offsets: add fields to them"
    )


def _what(field: PartitionField) -> tuple[int, str]:
    return field.source_id, str(field.transform)


def _check_added_columns(schema: Schema, shape: TableShape) -> None:
    known = iceberg_schema(shape).field_ids
    for field in schema.fields:
        if field.required and field.field_id not in known:
            raise TableRefused(
                f"column {field.name} must be optional: rows that come from the log have no value for it"
            )


def _check_rows(index: ManifestIndex, base: TableMetadata, new: TableMetadata, shape: TableShape) -> Sequence[DataFile]:
    before, after = base.current_snapshot(), new.current_snapshot()
    if after is None or after.snapshot_id in {entry.snapshot_id for entry in base.snapshot_log}:
        return ()
    try:
        change = _difference(index, before, after, shape)
    except CorruptObject as error:
        raise TableRefused(f"what the commit brings cannot be judged: {error}") from error
    frontier = parse_frontier(base.properties.get(FRONTIER_PROPERTY, ""))
    for delete in change.added_deletes:
        if delete.trouble:
            raise TableRefused(delete.trouble)
        if delete.vector is not None:
            raise TableRefused(
                f"{delete.path} has deletion vectors, and a stream's table stays in format version 2, which has none:"
                " let the engine delete by position or by copy"
            )
    for file in change.added:
        _check_file(file, frontier, base.location)
    _check_fit(change)
    return change.added


@dataclass(frozen=True, slots=True)
class _Difference:
    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    added_deletes: Sequence[PositionDeletes]


def _difference(index: ManifestIndex, before: Snapshot | None, after: Snapshot, shape: TableShape) -> _Difference:
    old = {} if before is None else _by_path(index.manifests(before.manifest_list))
    new = _by_path(index.manifests(after.manifest_list))
    gone = [index.get(manifest, shape) for path, manifest in old.items() if path not in new]
    come = [index.get(manifest, shape) for path, manifest in new.items() if path not in old]
    gone_files = {file.path: file for manifest in gone for file in manifest.files}
    come_files = {file.path: file for manifest in come for file in manifest.files}
    gone_deletes = {delete.path for manifest in gone for delete in manifest.deletes}
    return _Difference(
        added=[file for path, file in come_files.items() if path not in gone_files],
        removed=[file for path, file in gone_files.items() if path not in come_files],
        added_deletes=[delete for manifest in come for delete in manifest.deletes if delete.path not in gone_deletes],
    )


def _by_path(manifests: Iterable[ManifestFile]) -> dict[str, ManifestFile]:
    return {manifest.manifest_path: manifest for manifest in manifests}


def _check_file(file: DataFile, frontier: Sequence[int], location: str) -> None:
    """What is wrong with an added file whatever else the commit does."""
    if file.trouble:
        raise TableRefused(file.trouble)
    if not is_inside(file.path, location):
        raise TableRefused(
            f"{file.path} is outside of the table's folder {location}, where its files are looked for: let the engine"
            " write there (unset write.data.path)"
        )
    bounds = _bounds(file)
    if bounds is None:
        raise TableRefused(
            f"the manifest has no bounds of _stream_partition and _offset for {file.path}, so nobody can tell which"
            " records it has: let the engine write metrics of these columns"
        )
    if bounds.partition_min < 0 or bounds.partition_max >= len(frontier):
        raise TableRefused(
            f"{file.path} has rows of partition {bounds.partition_max}, and the topic has {len(frontier)}: {_PRODUCE}"
        )
    end = max(frontier[partition] for partition in bounds.partitions())
    if bounds.offset_min < 0 or bounds.offset_max >= end:
        raise TableRefused(
            f"{file.path} has offset {bounds.offset_max} where the table ends at {end}: offsets are the log's to give,"
            f" {_PRODUCE}"
        )
    room = (bounds.offset_max - bounds.offset_min + 1) * len(bounds.partitions())
    if file.record_count > room:
        raise TableRefused(
            f"{file.path} has {file.record_count} rows with only {room} offsets between them: an offset would be in the"
            " table twice"
        )


@dataclass(frozen=True, slots=True)
class _Bounds:
    partition_min: int
    partition_max: int
    offset_min: int
    offset_max: int

    def partitions(self) -> range:
        return range(self.partition_min, self.partition_max + 1)


def _bounds(file: DataFile) -> _Bounds | None:
    known = (file.partition_min, file.partition_max, file.offset_min, file.offset_max)
    return None if None in known else _Bounds(*known)  # type: ignore[arg-type]


def _check_fit(change: _Difference) -> None:
    """That the added rows can be rows which the commit takes away. Rows deleted by position may be any of the table's:
    with such deletes only the numbers are compared."""
    added_rows = sum(file.record_count for file in change.added)
    removed_rows = sum(file.record_count for file in change.removed)
    deleted_rows = sum(delete.record_count for delete in change.added_deletes)
    if not added_rows:
        return
    if not removed_rows and not deleted_rows:
        raise TableRefused(
            f"{added_rows} rows would be appended to a stream's table ({change.added[0].path}), and its rows come from"
            f" the log only: {_PRODUCE}"
        )
    if added_rows > removed_rows + deleted_rows:
        raise TableRefused(
            f"{added_rows} rows would be added where {removed_rows + deleted_rows} are removed: rows of a stream's"
            f" table may be rewritten, updated or deleted, never added; {_PRODUCE}"
        )
    if deleted_rows or any(_bounds(file) is None for file in change.removed):
        return
    _check_places(change)


def _check_places(change: _Difference) -> None:
    low: dict[int, int] = {}
    high: dict[int, int] = {}
    room: Counter[int] = Counter()
    for file, bounds in _bounded(change.removed):
        for partition in bounds.partitions():
            low[partition] = min(bounds.offset_min, low.get(partition, bounds.offset_min))
            high[partition] = max(bounds.offset_max, high.get(partition, bounds.offset_max))
            room[partition] += file.record_count
    taken: Counter[int] = Counter()
    for file, bounds in _bounded(change.added):
        covered = [partition for partition in bounds.partitions() if partition in low]
        inside = {bounds.partition_min, bounds.partition_max} <= set(covered)
        if (
            not inside
            or bounds.offset_min < min(low[partition] for partition in covered)
            or bounds.offset_max > max(high[partition] for partition in covered)
        ):
            raise TableRefused(
                f"{file.path} has rows of partitions {bounds.partition_min} to {bounds.partition_max}, offsets"
                f" {bounds.offset_min} to {bounds.offset_max}, beyond those that the commit removes: rows may be"
                f" rewritten in their place only; {_PRODUCE}"
            )
        if bounds.partition_min == bounds.partition_max:
            taken[bounds.partition_min] += file.record_count
    for partition, rows in taken.items():
        if rows > room[partition]:
            raise TableRefused(
                f"{rows} rows of partition {partition} would be added where {room[partition]} are removed: an offset"
                " would be in the table twice"
            )


def _bounded(files: Iterable[DataFile]) -> Iterator[tuple[DataFile, _Bounds]]:
    for file in files:
        bounds = _bounds(file)
        if bounds is not None:
            yield file, bounds
