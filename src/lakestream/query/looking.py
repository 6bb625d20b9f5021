"""Which rows a query reads of a table: of a stream's, table and tail at one vector of offsets, without a commit.

Heads first, then extents, then the view: what the heads say was acknowledged is in one of the two. What is of open or
aborted transactions is not read, and of a committed one all of its records or none (`frontier.moving.stable`). A tail
that is too large to decode for a query, or that has values of schemas that the table does not know yet, is committed
first, where this process may do that.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import msgspec

from lakestream.access import Authorizer, Operation, Principal, ResourceKind, check
from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.catalog.staging import Current
from lakestream.errors import (
    NoLongerThere,
    NotAuthorized,
    OffsetOutOfRange,
    Overloaded,
    RequestError,
    UnknownStream,
    UnknownTable,
)
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.advance import DueTail, ensure_table, plan_tail, read_tail
from lakestream.frontier.moving.replacement import frontier_of
from lakestream.frontier.moving.stable import NOBODY, stable_end
from lakestream.metadata.groups import committed_offsets
from lakestream.metadata.log.head import Head
from lakestream.metadata.log.partition import decode_head, head_address
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.metadata.topics.tables import DEFAULT_NAMESPACE, table_name
from lakestream.query.citations import CitedTable
from lakestream.query.questions import AsOf
from lakestream.query.sources import SnapshotSource, Source, StreamSource
from lakestream.table.reading.ranges import Ranges
from lakestream.table.shape import TableShape

Cut = Callable[[UUID], Awaitable[object]]
"""Commits what is in a topic's tail, if it can."""

_TILE_BYTES: Final = 4 * 1024 * 1024
_ROUNDS: Final = 4
_UNBOUNDED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Found:
    """A table of the query. `topic`: None if it is no stream's."""

    name: TableName
    table_id: UUID
    topic: Topic | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is read of a table, and how that is cited."""

    rows: Source
    cited: CitedTable


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """A stream at one moment. `row_count` and `table_bytes`: of the table's files; `tail_bytes`: of the WAL behind."""

    topic: Topic
    table: str
    shape: TableShape
    ends: tuple[int, ...]
    frontier: tuple[int, ...]
    file_count: int
    table_bytes: int
    row_count: int
    tail_bytes: int
    snapshot_id: int | None


class Tables:
    """`cut`: None where this process commits nothing. `io`: what PyIceberg has to be told of the bucket.
    `key_tail_bytes`: the longest tail that a lookup by key looks through; of other questions `lake` says it."""

    def __init__(
        self,
        catalog: EngineCatalog,
        lake: Lake,
        topics: Topics,
        authorizer: Authorizer,
        *,
        cut: Cut | None,
        io: Mapping[str, str],
        key_tail_bytes: int,
    ) -> None:
        self._catalog = catalog
        self._lake = lake
        self._key_lake = replace(lake, settings=msgspec.structs.replace(lake.settings, max_tick_bytes=key_tail_bytes))
        self._topics = topics
        self._authorizer = authorizer
        self._cut = cut
        self._io = io

    async def find(self, principal: Principal, name: TableName) -> Found:
        """By the table's name, or the topic's. Raises `UnknownTable`, `NotAuthorized`."""
        try:
            table_id = await self._catalog.readable(principal, name)
        except (UnknownTable, NotAuthorized):
            topic = await self._named(name)
            if topic is None or not self._catalog.may_read(principal, topic.name):
                raise
            return Found(name, topic.topic_id, topic)
        return Found(name, table_id, (await self._topics.by_ids([table_id])).get(table_id))

    async def _named(self, name: TableName) -> Topic | None:
        """The topic of that name, or whose table will have it."""
        listed = await self._topics.list()
        mine = (topic for topic in listed if table_name(topic.name, topic.options.table_name) == name)
        named = (topic for topic in listed if name.namespace == DEFAULT_NAMESPACE and topic.name == name.name)
        return next(mine, None) or next(named, None)

    async def at(
        self, principal: Principal, found: Found, as_of: AsOf, *, raw: bool = False, by_key: bool = False
    ) -> Seen:
        """What a caller sees of the table. A time has become offsets before. `raw`: values of unknown schemas are taken
        as bytes. `by_key`: few of its rows are looked for."""
        if found.topic is None or as_of.snapshot_id is not None:
            return await self._snapshot(principal, found, as_of)
        is_now = as_of.group is None and as_of.offsets is None
        tail = await self._tail(found.topic, whole=is_now, lake=self._key_lake if by_key else self._lake)
        ends = _ends(tail)
        if as_of.group is not None:
            ends = await self._read_by(principal, as_of.group, found.topic, ends)
        elif as_of.offsets is not None:
            ends = _asked(found, as_of.offsets, ends)
        return self._seen(found, tail, ends, as_of.since, raw=raw)

    async def listed(self, principal: Principal) -> list[Topic]:
        """The topics that the caller may describe, in order of their names."""
        return self._catalog.visible_topics(principal, await self._topics.list(), lambda topic: topic.name)

    async def names(self, principal: Principal) -> list[TableName]:
        """Of all tables that the caller may describe, those of streams that have no rows yet among them, in order."""
        found = {table_name(topic.name, topic.options.table_name) for topic in await self.listed(principal)}
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            for namespace in await self._catalog.namespaces(principal, waiting.pop()):
                waiting.append(namespace)
                found |= {TableName(namespace, each) for each in await self._catalog.tables(principal, namespace)}
        return sorted(found, key=lambda name: (name.namespace, name.name))

    async def stream(self, principal: Principal, name: str) -> Found:
        """A stream by the name of its topic or its table. Raises `UnknownTable`, `NotAuthorized`."""
        *namespace, last = name.split(".")
        for asked in dict.fromkeys((TableName(DEFAULT_NAMESPACE, name), TableName(tuple(namespace), last))):
            if not asked.namespace:
                continue
            try:
                found = await self.find(principal, asked)
            except UnknownTable:
                continue
            if found.topic is not None:
                return found
        raise UnknownTable(f"there is no stream {name}: list_streams tells those that there are")

    async def shape(self, found: Found) -> TableShape:
        """Of a stream, as its table has it now."""
        assert found.topic is not None
        try:
            return (await self._lake.catalog.load(found.topic.topic_id)).shape
        except UnknownStream:
            return (await self.facts(found)).shape

    async def facts(self, found: Found) -> "StreamFacts":
        """Of a stream."""
        assert found.topic is not None
        tail = await self._tail(found.topic, whole=True)
        view = tail.view
        return StreamFacts(
            topic=found.topic,
            table=view.table,
            shape=view.shape,
            ends=tuple(end for _, end in sorted(_ends(tail).items())),
            frontier=view.frontier,
            file_count=len(view.files),
            table_bytes=sum(file.size_bytes for file in view.files),
            row_count=sum(file.record_count for file in view.files),
            tail_bytes=tail.due_bytes,
            snapshot_id=view.snapshot_id,
        )

    async def ends(self, found: Found) -> tuple[int, ...]:
        """Where the stream ends now. One round trip."""
        assert found.topic is not None
        heads = await self._heads(found.topic)
        return tuple(stable_end(head) for _, head in sorted(heads.items()))

    async def cut(self, topic_id: UUID) -> bool:
        """False: nothing can be committed here."""
        if self._cut is None:
            return False
        await self._cut(topic_id)
        return True

    async def _tail(self, topic: Topic, *, whole: bool, lake: Lake | None = None) -> DueTail:
        """Up to where no transaction is open; `whole`: and no committed one has a part behind it."""
        for round_number in range(_ROUNDS):
            heads = await self._heads(topic)
            try:
                tail = await read_tail(lake or self._lake, topic, heads, NOBODY if whole else heads.keys())
            except UnknownStream:
                await ensure_table(self._lake, self._topics, topic)
                continue
            if not tail.more:
                return tail
            if round_number == _ROUNDS - 1 or not await self.cut(topic.topic_id):
                break
        raise Overloaded(
            f"more of topic {topic.name} waits for its table than a query can take: is the pipeline running? "
            "Ask again when `lakestream table lag` shows less"
        )

    async def _heads(self, topic: Topic) -> dict[int, Head]:
        """One round trip. Linearizable: what was acknowledged before is below them."""
        present = (await self._topics.by_ids([topic.topic_id])).get(topic.topic_id)
        if present is None:
            raise UnknownStream(f"topic {topic.name} was deleted")
        partitions = present.each_partition()
        entries = await self._lake.store.get([head_address(partition) for partition in partitions])
        found = [decode_head(entry, partition) for entry, partition in zip(entries, partitions, strict=True)]
        return {partition.index: at.head for partition, at in zip(partitions, found, strict=True) if at is not None}

    async def _read_by(self, principal: Principal, group: str, topic: Topic, ends: Mapping[int, int]) -> dict[int, int]:
        check(self._authorizer, principal, Operation.DESCRIBE, ResourceKind.GROUP, group)
        committed = await committed_offsets(self._lake.store, group)
        read = {each.index: at.offset for each, at in committed.items() if each.topic_id == topic.topic_id}
        if not read:
            raise RequestError(f"group {group} has committed no offset of topic {topic.name}")
        return {index: min(read.get(index, 0), end) for index, end in ends.items()}

    def _seen(
        self, found: Found, tail: DueTail, ends: Mapping[int, int], since: Sequence[int] | None, *, raw: bool
    ) -> Seen:
        # Rows below the log's start are history that retention has left in the table: engines see them, too.
        starts = dict.fromkeys(ends, 0) | dict(enumerate(since or ()))
        below, above = Ranges.between(starts, ends).cut(tail.view.frontier)
        wanted = {index: extents for index, extents in tail.due.items() if index in above.by_partition}
        wanted_tail = replace(tail, stable=replace(tail.stable, due=wanted))
        planned = plan_tail(self._lake, wanted_tail, tile_size=_TILE_BYTES)
        view = tail.view
        rows = StreamSource(
            view.location,
            view.shape,
            tuple(
                file
                for file in view.files
                if below.may_hold(
                    (file.partition_min or 0, _most(file.partition_max)), (file.offset_min or 0, _most(file.offset_max))
                )
            ),
            view.deletes,
            below,
            above,
            planned.tiles,
            needs_schemas=not raw,
        )
        cited = CitedTable(
            name=str(found.name),
            table_id=str(found.table_id),
            snapshot_id=None if view.snapshot_id is None else str(view.snapshot_id),
            offsets=tuple(ends.get(index, 0) for index in range(max(ends, default=-1) + 1)),
            since=None if since is None else tuple(since),
        )
        return Seen(rows, cited)

    async def _snapshot(self, principal: Principal, found: Found, as_of: AsOf) -> Seen:
        if any(given is not None for given in (as_of.offsets, as_of.group, as_of.time, as_of.since)):
            raise RequestError(
                f"{found.name} is no stream's table and has no offsets: say as_of.tables.<name> for the streams that "
                "the query reads, and for this one a snapshot_id, or nothing"
            )
        current, _ = await self._catalog.load(principal, found.name, None)
        snapshot_id = _snapshot_id(current, found, as_of.snapshot_id)
        cited = CitedTable(
            name=str(found.name),
            table_id=str(found.table_id),
            snapshot_id=None if snapshot_id is None else str(snapshot_id),
        )
        return Seen(SnapshotSource(current.location, snapshot_id, self._io), cited)


def _ends(tail: DueTail) -> dict[int, int]:
    return {index: tail.stable.ends.get(index, frontier_of(tail.view, index)) for index in tail.heads}


def _asked(found: Found, offsets: Sequence[int], ends: Mapping[int, int]) -> dict[int, int]:
    """Raises `OffsetOutOfRange` for what is not there yet."""
    for index, offset in enumerate(offsets):
        if offset > ends.get(index, 0):
            raise OffsetOutOfRange(
                f"partition {index} of {found.name} ends at {ends.get(index, 0)}: there is nothing up to {offset} yet"
            )
    return {index: offsets[index] if index < len(offsets) else 0 for index in ends}


def _snapshot_id(current: Current, found: Found, asked: str | int | None) -> int | None:
    metadata = current.metadata
    if asked is None:
        present = metadata.current_snapshot()
        return None if present is None else int(present.snapshot_id)
    try:
        number = int(asked)
    except ValueError:
        raise RequestError(f"a snapshot's id is a number, not {str(asked)[:50]!r}") from None
    if metadata.snapshot_by_id(number) is None:
        raise NoLongerThere(f"{found.name} has no snapshot {number}: it never had, or it is expired")
    return number


def _most(bound: int | None) -> int:
    return _UNBOUNDED if bound is None else bound
