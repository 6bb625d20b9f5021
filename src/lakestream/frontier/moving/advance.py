"""The chain that moves one topic's records from the WAL into its table.

    heads → extents → view → plan → tiles → table commit (carries the frontier) → head.frontier, extents dropped

Every step is idempotent and any worker can take over after any of them: what is done is read from the table, never
remembered. Heads and extents are read before the view, so that the view's frontier can only be at or beyond
them: an offset in neither is lost, not merely late.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from lakestream.catalog.rules.views import check_view
from lakestream.errors import Conflict, RetryableError, StorageError, Unavailable, UnknownStream
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.evolving import settle
from lakestream.frontier.moving.receipts import write_receipts
from lakestream.frontier.moving.replacement import frontier_of, gap_count, replaceable
from lakestream.frontier.moving.stable import NOBODY, Stable, stable
from lakestream.frontier.moving.tiles.plan import Plan, Range, Target, due, plan
from lakestream.frontier.moving.tiles.tile import TileOutcome, size_of
from lakestream.frontier.moving.tiles.visible import Gap
from lakestream.metadata.log.head import Extent, Head
from lakestream.metadata.log.partition import advance_frontier, read_extents, read_head
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.metadata.topics.tables import clashing_name, table_name
from lakestream.model import DataFile, StreamPartition, WrittenFile
from lakestream.schemas.growing import BY_ID, fits
from lakestream.table.shape import key_shape
from lakestream.table.view import View
from lakestream.wal import MAIN_STORE


@dataclass(frozen=True, slots=True)
class DueTail:
    """A topic as one look found it."""

    topic: Topic
    heads: Mapping[int, Head]
    view: View
    stable: Stable

    @property
    def due(self) -> Mapping[int, tuple[Extent, ...]]:
        """The partitions with something to move, and no more than one tick takes."""
        return self.stable.due

    @property
    def more(self) -> bool:
        """Something was left for the next tick."""
        return self.stable.more

    @property
    def due_bytes(self) -> int:
        return sum(size_of(extent) for extents in self.due.values() for extent in extents)


@dataclass(frozen=True, slots=True)
class Moved:
    """`superseded`: another worker was faster, its table stands and our files are gone. `replaced`: files of another
    worker that held a first part of what was committed, and gave way to ours."""

    view: View
    record_count: int
    superseded: bool = False
    replaced: int = 0


async def ensure_table(lake: Lake, topics: Topics, topic: Topic) -> None:
    """Makes the topic's table if there is none yet, or finishes what another began: a pointer is no proof of a name.
    If the topic was deleted meanwhile, its table is put away again: the name may already belong to another. Whoever
    crashed before that left a dead topic's table under the name; the next topic of that name puts it away. A name
    that is another living topic's, or an engine's, stays theirs, and ours goes by another."""
    wanted = table_name(topic.name, topic.options.table_name)
    try:
        view = await lake.catalog.create(topic.topic_id, topic.name, topic.partitions, table=wanted)
    except Conflict:
        if not await _put_away(lake, topics, wanted):
            if not topic.options.table_name:
                wanted = clashing_name(wanted, topic.topic_id)
            elif not await _adopt(lake, topic, wanted):
                raise
        view = await lake.catalog.create(topic.topic_id, topic.name, topic.partitions, table=wanted)
    await settle(lake, topic, view)
    if topic.topic_id not in await topics.by_ids([topic.topic_id]):
        await lake.catalog.detach(topic.topic_id)
        raise UnknownStream(f"topic {topic.name} was deleted while its table was made")


async def _adopt(lake: Lake, topic: Topic, table: TableName) -> bool:
    """Finishes what the topic's creation began, if it goes on in a table that was there. The log knows where from:
    until the table is the topic's nobody moves its frontier. False: it is no such topic."""
    heads = [await read_head(lake.store, partition) for partition in topic.each_partition()]
    frontier = tuple(found.head.frontier for found in heads if found is not None)
    return await lake.catalog.adopt(topic.topic_id, topic.name, frontier, table=table)


async def _put_away(lake: Lake, topics: Topics, name: TableName) -> bool:
    """Detaches the table of that name if it belongs to a topic that is no more. A table is made only for a topic that
    is listed, and no id is ever listed again: one that the list lacks now is dead for good."""
    owner = await lake.catalog.owner(name)
    if owner is None or owner in await topics.by_ids([owner]):
        return False
    await lake.catalog.detach(owner)
    return True


async def read_tail(lake: Lake, topic: Topic, heads: Mapping[int, Head], overdue: AbstractSet[int] = NOBODY) -> DueTail:
    """`heads` were read before. `overdue`: partitions that have waited long enough for transactions to become whole.
    `UnknownStream`: the topic has no table."""
    behind = [index for index, head in heads.items() if head.frontier < head.next_offset]
    found = await asyncio.gather(
        *(read_extents(lake.store, StreamPartition(topic.topic_id, index), heads[index].frontier) for index in behind)
    )
    view = await lake.catalog.load(topic.topic_id)
    check_view(view)
    view = await settle(lake, topic, view)
    for index, head in heads.items():
        if head.frontier > frontier_of(view, index):
            raise StorageError(
                f"topic {topic.name}, partition {index}: the table ends at {frontier_of(view, index)}, yet the log was "
                f"told that it holds everything below {head.frontier}; was the table replaced or rolled back?"
            )
    tails = {
        index: due(topic.name, index, frontier_of(view, index), extents)
        for index, extents in zip(behind, found, strict=True)
    }
    found_stable = await stable(lake, topic, heads, view, tails, overdue)
    if any(map(_is_in_disks, found_stable.due.values())):
        await lake.wal.refresh()
    return DueTail(topic, heads, view, found_stable)


def plan_tail(lake: Lake, tail: DueTail, *, tile_size: int) -> Plan:
    wanted, keys = tail.topic.options.value_format, tail.topic.options.key_format
    target = Target(
        tail.topic.topic_id,
        tail.topic.name,
        bucket=lake.objects.url,
        location=tail.view.location,
        own_file_bytes=lake.settings.own_file_bytes,
        target_file_bytes=lake.settings.target_file_bytes,
        compression=tail.view.compression,
        shape=tail.view.shape,
        disks=lake.wal.named() if any(map(_is_in_disks, tail.due.values())) else (),
        is_typed=fits(tail.view.shape.codec, wanted),
        has_ids=wanted == BY_ID,
        is_key_typed=fits(key_shape(tail.view.shape).codec, keys),
        has_key_ids=keys == BY_ID,
    )
    told = tail.stable
    return plan(target, tail.view.frontier, tail.due, tile_size=tile_size, ends=told.ends, aborted=told.aborted)


def _is_in_disks(extents: Iterable[Extent]) -> bool:
    return any(extent.object_key and extent.stores != (MAIN_STORE,) for extent in extents)


async def commit(
    lake: Lake, tail: DueTail, planned: Plan, outcomes: Sequence[TileOutcome], *, replace: bool = True
) -> Moved:
    """Commits the planned ranges whole, on the table as it is now, or nothing.

    Where another worker has moved a first part of them, its files give way if that loses nothing (`replaceable`);
    otherwise, and without `replace`, the rest has to be planned again. Rewrites by other engines are ridden out with
    the same files. Files are deleted only after a certain failure: when an outcome is unknown (`Unavailable`) they
    stay."""
    files = [file for outcome in outcomes for file in outcome.files]
    topic_id = tail.topic.topic_id
    failed = next((outcome for outcome in outcomes if outcome.error), None)
    if failed is not None:
        await discard(lake, files)
        view = await lake.catalog.load(topic_id)
        if _starts_hold(view, planned.ranges):
            await _check_living(lake, tail.topic, planned.ranges)
            raise (Unavailable if failed.retryable else StorageError)(failed.error)
        return Moved(view, 0, superseded=True)
    gaps = [gap for outcome in outcomes for gap in outcome.gaps]
    _check_counts(tail.topic, planned.ranges, files, gaps)
    await write_receipts(lake, topic_id, tail.due)
    view = tail.view
    gone: tuple[DataFile, ...] = ()
    for _ in range(lake.settings.max_commit_attempts):
        frontier = frontier_beyond(view, planned.ranges)
        try:
            done = await lake.catalog.commit(
                view,
                add=files,
                remove=gone,
                frontier=frontier,
                gaps=gap_count(gaps, view.frontier),
                split=tail.stable.split,
            )
        except Conflict:
            view = await lake.catalog.load(topic_id)
        else:
            return Moved(done, _row_count(files) - _row_count(gone), replaced=len(gone))
        found = replaceable(tail.view, view, planned.ranges, gaps)
        if found is None or (found and not replace):
            await discard(lake, files)
            return Moved(view, 0, superseded=True)
        gone = found
    await discard(lake, files)
    raise Conflict(
        f"topic {tail.topic.name}: others changed its table {lake.settings.max_commit_attempts} times in a row while a "
        "commit was tried; it will be tried again"
    )


async def advance(lake: Lake, tail: DueTail, view: View) -> None:
    """Tells the log what the committed view holds, so that the WAL below may go. Deleted partitions need no telling."""
    behind = [index for index, head in tail.heads.items() if head.frontier < frontier_of(view, index)]
    await asyncio.gather(*(_advance_one(lake, tail.topic, index, frontier_of(view, index)) for index in behind))


async def _advance_one(lake: Lake, topic: Topic, index: int, frontier: int) -> None:
    try:
        await advance_frontier(lake.store, StreamPartition(topic.topic_id, index), frontier)
    except UnknownStream:
        return


async def discard(lake: Lake, files: Iterable[WrittenFile]) -> None:
    """Deletes files that certainly no table names. What cannot be reached stays behind as an orphan."""
    inside = lake.objects.url + "/"
    keys = [file.path.removeprefix(inside) for file in files if file.path.startswith(inside)]
    if not keys:
        return
    try:
        await lake.objects.delete(keys)
    except RetryableError:
        return


async def _check_living(lake: Lake, topic: Topic, ranges: Iterable[Range]) -> None:
    """Logs are deleted before the table is let go, and their WAL with them: that it is missing then is no alarm."""
    for each in ranges:
        if await read_head(lake.store, StreamPartition(topic.topic_id, each.partition)) is None:
            raise UnknownStream(f"topic {topic.name} was deleted while its records were moved")


def _check_counts(topic: Topic, ranges: Iterable[Range], files: Iterable[WrittenFile], gaps: Iterable[Gap]) -> None:
    """Every offset that is to be below the frontier has a row, or is a gap that the tiles know the reason of."""
    offsets = sum(each.end - each.start for each in ranges)
    rows, empty = _row_count(files), gap_count(gaps)
    if rows + empty != offsets:
        raise StorageError(
            f"topic {topic.name}: {offsets} offsets were to be moved into its table, and of them tiles made {rows} rows"
            f" and {empty} gaps; nothing of it is committed"
        )


def _row_count(files: Iterable[WrittenFile | DataFile]) -> int:
    return sum(file.record_count for file in files)


def _starts_hold(view: View, ranges: Iterable[Range]) -> bool:
    return all(frontier_of(view, each.partition) == each.start for each in ranges)


def frontier_beyond(view: View, ranges: Sequence[Range]) -> tuple[int, ...]:
    """The view's frontier with the ranges' ends; longer if the topic has grown."""
    ends = {each.partition: each.end for each in ranges}
    length = max(len(view.frontier), max(ends, default=-1) + 1)
    return tuple(ends.get(index, frontier_of(view, index)) for index in range(length))
