"""What to read, cut into tasks: whole table files below the frontier, ranges of the log from there on. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from lakestream.errors import OffsetOutOfRange, RequestError, UnknownStream
from lakestream.model import DataFile, PositionDeletes
from lakestream.spark_source.options import EARLIEST, LATEST, Options, Position
from lakestream.spark_source.reading.filters import Bounds
from lakestream.spark_source.reading.log import Log
from lakestream.spark_source.reading.tail import Address
from lakestream.spark_source.reading.view import TableView
from lakestream.table.reading.ranges import Ranges

_UNBOUNDED: Final = 2**63 - 1


@dataclass(frozen=True)
class HistoryTask(InputPartition):
    """Whole files; their rows that are in the ranges."""

    location: str
    files: tuple[DataFile, ...]
    deletes: tuple[PositionDeletes, ...]
    ranges: Ranges
    oldest_ms: int | None


@dataclass(frozen=True)
class TailTask(InputPartition):
    topic_id: UUID
    ranges: Ranges
    brokers: tuple[Address, ...]


Task = HistoryTask | TailTask


def check_same_topic(topic: str, known: UUID, found: UUID) -> None:
    """`UnknownStream` if the name has moved on to another topic."""
    if known != found:
        raise UnknownStream(
            f"topic {topic} had id {known}, and the topic of that name has id {found} now: it was deleted and made "
            "anew. Its records are another stream: start anew, a query with a new checkpoint"
        )


def resolve(position: Position, log: Log, first_at: Mapping[int, int]) -> dict[int, int]:
    """An offset for every partition. `first_at` answers the position's timestamp, if it has one. Nothing lies beyond
    the end; what lies below the log's start may still be in the table."""
    if unknown := sorted(position.by_partition.keys() - log.ends.keys()):
        raise RequestError(f"the topic has no partition {unknown[0]}: its partitions are 0 to {len(log.ends) - 1}")
    offsets = {}
    for partition, end in log.ends.items():
        offset = position.by_partition.get(partition, position.otherwise)
        if position.timestamp_ms is not None:
            offset = first_at[partition]
        offsets[partition] = end if offset == LATEST else 0 if offset == EARLIEST else min(offset, end)
    return offsets


def readable(tail: Ranges, log: Log, *, fail_on_data_loss: bool) -> Ranges:
    """What of the tail the log still has. `OffsetOutOfRange` if some is gone and that is not to be passed over."""
    starts = {partition: max(start, log.starts[partition]) for partition, start, _ in tail}
    ends = {partition: end for partition, _, end in tail}
    for partition, start, end in tail:
        if starts[partition] > start and fail_on_data_loss:
            raise lost(partition, start, min(starts[partition], end))
    return Ranges.between(starts, ends)


def lost(partition: int, start: int, end: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"offsets {start} to {end} of partition {partition} are no longer in the log: they were deleted, or retention "
        "has passed them. To go on with what is left, set failOnDataLoss to false"
    )


def history_tasks(view: TableView, ranges: Ranges, bounds: Bounds, options: Options) -> list[Task]:
    """Files that may hold rows of the ranges, grouped to the size of a task."""
    if view.location is None or not ranges:
        return []
    return [
        HistoryTask(view.location, group, view.deletes, ranges, bounds.oldest_ms)
        for group in _groups(_matching(view.files, ranges, bounds), options.max_bytes_per_partition)
    ]


def tail_tasks(log: Log, ranges: Ranges, options: Options) -> list[Task]:
    return [TailTask(log.topic_id, part, log.brokers) for part in ranges.split(options.max_records_per_partition)]


def _matching(files: Sequence[DataFile], ranges: Ranges, bounds: Bounds) -> Iterator[DataFile]:
    """By partition and offset, so that neighbours become one task. A bound that the manifest lacks may match."""
    for file in sorted(files, key=lambda file: (file.partition_min or 0, file.offset_min or 0)):
        partitions = (file.partition_min or 0, _most(file.partition_max))
        offsets = (file.offset_min or 0, _most(file.offset_max))
        if ranges.may_hold(partitions, offsets) and _most(file.timestamp_max_ms) >= (bounds.oldest_ms or 0):
            yield file


def _most(bound: int | None) -> int:
    return _UNBOUNDED if bound is None else bound


def _groups(files: Iterator[DataFile], most_bytes: int) -> Iterator[tuple[DataFile, ...]]:
    group: list[DataFile] = []
    size_bytes = 0
    for file in files:
        if group and size_bytes + file.size_bytes > most_bytes:
            yield tuple(group)
            group, size_bytes = [], 0
        group.append(file)
        size_bytes += file.size_bytes
    if group:
        yield tuple(group)
