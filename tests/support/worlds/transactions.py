"""A topic's log with transactions, written by hand into a memory world: rows and objects as brokers leave them, but
without their code. So a test says what is where at which moment, a marker that is still to come included."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.log.head import (
    HEAD,
    MARKER_EXTENT,
    Extent,
    Head,
    Marker,
    ProducerState,
    extent_key,
    producer_key,
    shard_of,
)
from lakestream.metadata.log.partition import read_head
from lakestream.metadata.store import Address, Applied, Transaction
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.records import control_batch, crc32c
from lakestream.wal import MAIN_STORE, Section, build, object_key, session_name
from support.clients.batches import batch
from support.worlds.memory import MemoryWorld


@dataclass
class Under:
    """A transaction that is under way. `parts`: [first, end) of what it has, in each partition that it was enlisted in
    and that has no marker of it yet; None: nothing. `enlisted`: all of them."""

    name: str
    number: int
    producer_id: int
    commits: bool = False
    parts: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    enlisted: tuple[int, ...] = ()
    rows: list[tuple[int, int, bytes]] = field(default_factory=list)


class HandmadeLog:
    """Of one topic. Producers are known by their transactional ids; an empty one is of plain records."""

    def __init__(self, world: MemoryWorld, topic: Topic) -> None:
        self._world = world
        self.topic = topic
        self._session = session_name(world.runtime.new_id(), "handmade")
        self._flushes = 0
        self._producers: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._open: dict[str, Under] = {}
        self._prepared: list[Under] = []
        self.transactions: list[Under] = []
        self.committed: list[tuple[int, int, bytes]] = []
        """The rows that the table is to have in the end."""

    async def append(self, *sent: tuple[str, int, Sequence[bytes]]) -> None:
        """(transactional id, partition, values): those of one partition that stand side by side are one extent."""
        runs: list[tuple[int, list[tuple[str, Sequence[bytes]]]]] = []
        for name, index, values in sent:
            if not runs or runs[-1][0] != index:
                runs.append((index, []))
            runs[-1][1].append((name, values))
        for index, batches in runs:
            await self._append(index, batches)

    async def _append(self, index: int, batches: Iterable[tuple[str, Sequence[bytes]]]) -> None:
        head = await self._head(index)
        base = at = head.next_offset
        data = b""
        first_open = head.first_open
        for name, values in batches:
            producer = (self._producer(name), 0, 0) if name else (-1, -1, -1)
            data += batch(*values, producer=producer, transactional=bool(name))
            rows = [(index, at + place, value) for place, value in enumerate(values)]
            if name:
                under = self.enlist(name, index)
                held = under.parts[index]
                under.parts[index] = (held[0] if held else at, at + len(values))
                under.rows += rows
                first_open = at if first_open is None else first_open
            else:
                self.committed += rows
            at += len(values)
        self._flushes += 1
        key = object_key(0, self._session, self._flushes)
        partition = StreamPartition(self.topic.topic_id, index)
        built = build(
            [Section(partition, [data], at - base, 1)], [], session=self._session, flush=self._flushes, generation=0
        )
        await self._world.objects.put(key, built.parts)
        [span] = built.spans
        extent = Extent(base, at, (MAIN_STORE,), key, span.position, len(data), 1, crc32c(data))
        await self._put(index, msgspec.structs.replace(head, next_offset=at, first_open=first_open), extent)

    def enlist(self, name: str, *partitions: int) -> Under:
        if name not in self._open:
            self._open[name] = Under(name, self._numbers.get(name, 0), self._producer(name))
            self.transactions.append(self._open[name])
        found = self._open[name]
        for index in partitions:
            found.parts.setdefault(index, None)
        found.enlisted = tuple(sorted(found.parts))
        return found

    def prepare(self, name: str, *, commits: bool = True) -> Under:
        """Nobody enlists any more, and markers may come."""
        found = self._open.pop(name)
        found.commits = commits
        self._numbers[name] = found.number + 1
        if commits:
            self.committed += found.rows
        self._prepared.append(found)
        return found

    async def end(self, name: str, *, commits: bool = True) -> Under:
        found = self.prepare(name, commits=commits)
        for index in found.enlisted:
            await self.mark(found, index)
        return found

    async def mark(self, found: Under, index: int) -> None:
        head = await self._head(index)
        part, at = found.parts.pop(index), head.next_offset
        data = control_batch(at, at)
        marker = Marker(
            transactional_id=found.name,
            number=found.number,
            producer_id=found.producer_id,
            epoch=0,
            committed=found.commits,
            first_offset=part[0] if part else None,
            end_offset=part[1] if part else None,
            partitions=found.enlisted,
            coordinator_epoch=0,
        )
        extent = Extent(at, at + 1, (), "", 0, 0, 1, crc32c(data), data, MARKER_EXTENT, marker)
        others = [each.parts.get(index) for each in (*self._open.values(), *self._prepared)]
        first_open = min((held[0] for held in others if held is not None), default=None)
        await self._put(index, msgspec.structs.replace(head, next_offset=at + 1, first_open=first_open), extent)
        await self._put_state(index, found.producer_id, ProducerState(0, (), 0, 1, ended=found.number))

    def _producer(self, name: str) -> int:
        return self._producers.setdefault(name, 100 + len(self._producers))

    async def _head(self, index: int) -> Head:
        found = await read_head(self._world.store, StreamPartition(self.topic.topic_id, index))
        assert found is not None
        return found.head

    async def _put(self, index: int, head: Head, extent: Extent) -> None:
        partition = StreamPartition(self.topic.topic_id, index)
        shard = shard_of(partition)
        found = await read_head(self._world.store, partition)
        assert found is not None
        puts = {
            HEAD: codec.encode(head, Address(shard, HEAD)),
            extent_key(extent.end_offset): codec.encode(extent, Address(shard, extent_key(extent.end_offset))),
        }
        [outcome] = await self._world.store.transact([Transaction(shard, {HEAD: found.version}, puts)])
        assert isinstance(outcome, Applied)

    async def _put_state(self, index: int, producer_id: int, state: ProducerState) -> None:
        shard, key = shard_of(StreamPartition(self.topic.topic_id, index)), producer_key(producer_id)
        await self._world.store.transact([Transaction(shard, {}, {key: codec.encode(state, Address(shard, key))})])
