"""Which records leave the stream, and which rows the table.

`retention.ms` and `retention.bytes` move a partition's log start; the table keeps its rows. The unit is the table file,
as Kafka's is the segment: the log start passes a file only if every record below it is old enough, or if what stays
has the size to keep, so nothing young goes. It never passes the frontier: what is not in the table yet stays readable.

`lakestream.table.retention.ms` drops whole files by a commit that only removes. The same rule finds them, and the log
start passes them first: a consumer is told OFFSET_OUT_OF_RANGE and not led over an unexplained gap. Rows that a derived
table has not seen yet stay (`frontier.derived.waiting`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakestream.errors import Conflict, UnknownStream
from lakestream.frontier.derived.waiting import seen
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.tile import size_of
from lakestream.metadata.log.head import Head
from lakestream.metadata.log.partition import advance_log_start, decode_head, head_address, read_extents
from lakestream.metadata.topics.list import Topic
from lakestream.metadata.topics.options import UNLIMITED, TopicOptions
from lakestream.model import DataFile, StreamPartition
from lakestream.table.reading.shares import Share, Shares

MAX_LEARNT_FILES: Final = 64
"""Shared files whose places one pass reads."""
MAX_DROPPED_FILES: Final = 2_000
"""Of one commit."""

ByPartition = Mapping[int, Sequence[Share]]


@dataclass(frozen=True, slots=True)
class Retirement:
    """`log_starts`: where the log start of partitions is to be, at least. `drop`: files that then leave the table."""

    log_starts: Mapping[int, int]
    drop: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Retired:
    """What was done: partitions whose log start moved, files and rows that left the table."""

    partitions: int = 0
    files: int = 0
    record_count: int = 0


def is_wanted(options: TopicOptions) -> bool:
    by_stream = options.deletes and (options.retention_ms != UNLIMITED or options.retention_bytes != UNLIMITED)
    return by_stream or options.table_retention_ms != UNLIMITED


async def plan_retirement(lake: Lake, shares: Shares, topic: Topic) -> Retirement:
    """What is to go now. Changes nothing."""
    options, now_ms = topic.options, lake.runtime.clock.now_ms()
    heads = await _heads(lake, topic)
    view = await lake.catalog.load(topic.topic_id)
    await shares.learn(view.files, MAX_LEARNT_FILES)
    by_file = {file.path: shares.of(file, len(view.frontier)) for file in view.files}
    by_partition: dict[int, list[Share]] = {}
    for found in by_file.values():
        for partition, share in found.items():
            by_partition.setdefault(partition, []).append(share)

    starts: dict[int, int] = {}
    for index, head in heads.items():
        frontier = min(head.frontier, view.frontier[index] if index < len(view.frontier) else 0)
        own = by_partition.get(index, [])
        start = 0
        if options.deletes and options.retention_ms != UNLIMITED:
            start = older_than(own, now_ms - options.retention_ms, frontier)
        if options.deletes and options.retention_bytes != UNLIMITED:
            tail_bytes = await _tail_bytes(lake, topic, index, head)
            start = max(start, beyond_size(own, options.retention_bytes - tail_bytes, frontier))
        if start > head.log_start:
            starts[index] = start
    drop: tuple[DataFile, ...] = ()
    if options.table_retention_ms != UNLIMITED:
        cutoff_ms = now_ms - options.table_retention_ms
        derived = await seen(lake.derived, topic.topic_id)

        def old_below(index: int, frontier: int) -> int:
            own, end = by_partition.get(index, []), min(heads[index].frontier, frontier)
            found = older_than(own, cutoff_ms, end)
            if derived is None:
                return found
            # What a derived table has not seen waits, and not for ever.
            waited = older_than(own, cutoff_ms - lake.settings.derived_wait_ms, end)
            return max(waited, min(found, derived[index] if index < len(derived) else 0))

        old = {index: old_below(index, frontier) for index, frontier in enumerate(view.frontier) if index in heads}
        drop = droppable(view.files, by_file, old)[:MAX_DROPPED_FILES]
        for file in drop:
            for index, share in by_file[file.path].items():
                if share.offset_max >= max(starts.get(index, 0), heads[index].log_start):
                    starts[index] = share.offset_max + 1
    return Retirement(starts, drop)


async def retire(lake: Lake, topic: Topic, planned: Retirement) -> Retired:
    """Every step may be repeated, by anybody: a log start never falls, and a file leaves the table once."""
    moved = await asyncio.gather(
        *(_move(lake, StreamPartition(topic.topic_id, index), start) for index, start in planned.log_starts.items())
    )
    partitions = sum(done for done, _ in moved)
    if not planned.drop or not all(reached for _, reached in moved):
        return Retired(partitions)
    for _ in range(lake.settings.max_commit_attempts):
        view = await lake.catalog.load(topic.topic_id)
        live = set(view.files)
        gone = [file for file in planned.drop if file in live]
        if not gone:
            break
        try:
            await lake.catalog.commit(view, add=(), remove=gone, frontier=view.frontier)
        except Conflict:
            continue
        return Retired(partitions, len(gone), sum(file.record_count for file in gone))
    return Retired(partitions)


def older_than(shares: Sequence[Share], cutoff_ms: int, frontier: int) -> int:
    """The offset below which every record of the partition is older. A file of unknown time is not old."""
    young = (
        share.offset_min for share in shares if share.timestamp_max_ms is None or share.timestamp_max_ms >= cutoff_ms
    )
    return min(frontier, min(young, default=frontier))


def beyond_size(shares: Sequence[Share], kept_bytes: int, frontier: int) -> int:
    """The offset from which on the files have at least `kept_bytes`, or 0. Of shares that are not exact no byte
    counts."""
    start = frontier
    for share in sorted(shares, key=lambda share: (-share.offset_max, -share.offset_min)):
        if kept_bytes <= 0:
            return start
        start = min(start, share.offset_min)
        kept_bytes -= share.size_bytes
    return start if kept_bytes <= 0 else 0


def droppable(
    files: Sequence[DataFile], by_file: Mapping[str, Mapping[int, Share]], old: Mapping[int, int]
) -> tuple[DataFile, ...]:
    """The files all of whose records are below the offsets in `old`, oldest first."""
    found = [
        file
        for file in files
        if by_file[file.path]
        and all(share.exact and share.offset_max < old.get(index, 0) for index, share in by_file[file.path].items())
    ]
    return tuple(sorted(found, key=lambda file: (file.timestamp_max_ms or 0, file.path)))


async def _heads(lake: Lake, topic: Topic) -> dict[int, Head]:
    """Before the view: see `plan_retirement`."""
    partitions = topic.each_partition()
    entries = await lake.store.get([head_address(partition) for partition in partitions])
    found = [
        (partition.index, decode_head(entry, partition)) for partition, entry in zip(partitions, entries, strict=True)
    ]
    return {index: present.head for index, present in found if present is not None}


async def _tail_bytes(lake: Lake, topic: Topic, index: int, head: Head) -> int:
    partition = StreamPartition(topic.topic_id, index)
    return sum(map(size_of, await read_extents(lake.store, partition, head.frontier)))


async def _move(lake: Lake, partition: StreamPartition, start: int) -> tuple[bool, bool]:
    """Whether it moved, and whether it is where it should be. A deleted partition has nothing to move."""
    try:
        head, moved = await advance_log_start(lake.store, partition, start)
    except UnknownStream:
        return False, False
    return moved, head.log_start >= start
