"""What readers of committed records get, and what all others."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from support.clients.batches import batch
from support.clients.records import parse
from support.worlds.brokers import BrokerWorld
from support.worlds.enlisting import ListedTransactions

from lakestream.errors import InvalidRecords, InvalidTransactionState, TransactionAbortable
from lakestream.metadata.log.ending import Ended, end_in_logs
from lakestream.metadata.log.enlistment import InTransaction
from lakestream.metadata.log.partition import advance_frontier
from lakestream.metadata.log.transactions import Ending
from lakestream.model import StreamPartition
from lakestream.objects.store import Buffer
from lakestream.records import walk
from lakestream.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from lakestream.stream import LATEST, MAX_TIMESTAMP, Fetched, FetchPartition, StreamSettings
from lakestream.stream.engine import StreamEngine

MIB = 1 << 20


class Producer:
    """Of one transactional id, as its client and its coordinator see it: a new epoch with every transaction."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.producer_id = number
        self.name = f"t{number}"
        self.epoch = self.sequence = 0
        world.list.open[self.name] = 0

    async def send(
        self, streams: StreamEngine, partition: StreamPartition, *values: bytes, time_ms: int = 1_700_000_000_000
    ) -> int:
        data = batch(
            *values,
            producer=(self.producer_id, self.epoch, self.sequence),
            transactional=True,
            timestamp_ms=time_ms,
        )
        appended = await streams.append(partition, data, transaction=InTransaction(self.name, implicit=True))
        self.sequence += len(values)
        return appended.base_offset

    async def end(self, partition: StreamPartition, *, committed: bool) -> int:
        number = self.epoch
        ending = Ending(self.name, number, self.producer_id, number, committed, number + 1, 0, 1_700_000_000_000)
        ended = (await end_in_logs(self.world.brokers.store, ending, [partition]))[partition]
        assert isinstance(ended, Ended)
        assert ended.marker_offset is not None
        self.epoch += 1
        self.sequence = 0
        self.world.list.open[self.name] = self.epoch
        return ended.marker_offset


class World:
    def __init__(self, settings: StreamSettings | None = None) -> None:
        self.list = ListedTransactions()
        self.brokers = BrokerWorld(enlistment=self.list, settings=settings or StreamSettings(flush_interval_ms=1))

    @asynccontextmanager
    async def start(self, count: int = 1) -> AsyncIterator[tuple[list[StreamEngine], StreamPartition]]:
        async with self.brokers.brokers(count) as started:
            [partition] = (await started[0].create_topic("orders", 1, {})).each_partition()
            yield started, partition


async def fetch(
    streams: StreamEngine,
    partition: StreamPartition,
    offset: int,
    *,
    committed: bool = True,
    max_bytes: int = MIB,
    wait_ms: int = 0,
    fresh: bool = True,
) -> Fetched:
    """`fresh`: by the head as it is now, which a broker otherwise asks for at the end of what it knows."""
    if fresh:
        await streams.list_offset(partition, LATEST)
    wanted = FetchPartition(partition, offset, max_bytes, committed=committed)
    [found] = await streams.fetch([wanted], min_bytes=1, max_bytes=max_bytes, max_wait_ms=wait_ms)
    assert found.error is None, found.error
    return found


def seen_by_client(found: Fetched, offset: int) -> tuple[list[tuple[int, bytes | None]], int]:
    """The records that a consumer of committed records hands out, by the rules that Kafka's clients have, and where it
    goes on."""
    data = b"".join(map(bytes, found.parts))
    waiting = sorted((each.first_offset, each.producer_id) for each in found.aborted)
    aborted: set[int] = set()
    records: list[tuple[int, bytes | None]] = []
    for info in walk(data):
        base = int.from_bytes(data[info.position : info.position + 8], "big")
        last = base + info.last_offset_delta
        while waiting and waiting[0][0] <= last:
            aborted.add(waiting.pop(0)[1])
        one = data[info.position : info.position + info.length]
        if info.attributes & CONTROL_BIT:
            is_abort = one[66:70] == bytes(4)
            if is_abort:
                aborted.discard(info.producer_id)
        elif not (info.attributes & TRANSACTIONAL_BIT and info.producer_id in aborted):
            records += [(record.offset, record.value) for record in parse([one]) if record.offset >= offset]
        offset = last + 1
    return records, offset


async def all_committed(
    streams: StreamEngine, partition: StreamPartition, *, max_bytes: int = MIB
) -> tuple[list[tuple[int, bytes | None]], int]:
    offset = 0
    records: list[tuple[int, bytes | None]] = []
    while True:
        found = await fetch(streams, partition, offset, max_bytes=max_bytes, fresh=False)
        more, after = seen_by_client(found, offset)
        if after == offset:
            return records, offset
        records, offset = records + more, after


def values(parts: Sequence[Buffer]) -> list[bytes | None]:
    return [record.value for record in parse(parts)]


async def test_what_is_open_is_not_served_and_what_was_aborted_is_named() -> None:
    world = World()
    async with world.start() as ([streams], partition):
        one, two = Producer(world, 1), Producer(world, 2)
        await streams.append(partition, batch(b"plain"))
        await one.send(streams, partition, b"a", b"b")
        await two.send(streams, partition, b"c")
        found = await fetch(streams, partition, 0)
        assert (values(found.parts), found.high_watermark, found.last_stable_offset) == ([b"plain"], 4, 1)
        everything = await fetch(streams, partition, 0, committed=False)
        assert values(everything.parts) == [b"plain", b"a", b"b", b"c"]
        assert (everything.last_stable_offset, list(everything.aborted)) == (1, [])
        assert (await fetch(streams, partition, 2)).parts == []
        assert await two.end(partition, committed=False) == 4
        assert (await fetch(streams, partition, 0)).last_stable_offset == 1
        await one.end(partition, committed=True)
        found = await fetch(streams, partition, 0)
        assert (found.high_watermark, found.last_stable_offset) == (6, 6)
        assert [(each.producer_id, each.first_offset) for each in found.aborted] == [(2, 3)]
        assert seen_by_client(found, 0) == ([(0, b"plain"), (1, b"a"), (2, b"b")], 6)
        # The marker is behind the offset: what lies before it is named all the same.
        assert [each.producer_id for each in (await fetch(streams, partition, 4)).aborted] == [2]
        assert (await fetch(streams, partition, 5)).aborted == []


async def test_the_end_of_a_transaction_wakes_those_who_wait_for_committed_records() -> None:
    world = World()
    async with world.start(2) as ([writer, reader], partition):
        one = Producer(world, 1)
        await one.send(writer, partition, b"a")
        waiting = asyncio.create_task(fetch(reader, partition, 0, wait_ms=30_000))
        await asyncio.sleep(0.05)
        await writer.append(partition, batch(b"plain"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await one.end(partition, committed=True)
        found = await asyncio.wait_for(waiting, 5)
        assert values(found.parts) == [b"a", b"plain"]


async def test_the_latest_offset_of_committed_records_is_the_stable_one() -> None:
    world = World()
    async with world.start() as ([streams], partition):
        one = Producer(world, 1)
        await streams.append(partition, batch(b"plain", timestamp_ms=1_000))
        await one.send(streams, partition, b"a", time_ms=2_000)
        for committed, latest, newest in ((True, 1, -1), (False, 2, 1)):
            assert (await streams.list_offset(partition, LATEST, committed=committed)).offset == latest
            assert (await streams.list_offset(partition, 1_500, committed=committed)).offset == newest
            assert (await streams.list_offset(partition, MAX_TIMESTAMP, committed=committed)).offset == newest
        assert (await streams.list_offset(partition, 500, committed=True)).offset == 0
        await one.end(partition, committed=True)
        assert (await streams.list_offset(partition, LATEST, committed=True)).offset == 3
        assert (await streams.list_offset(partition, 1_500, committed=True)).offset == 1


async def test_a_log_start_beyond_an_open_transaction_is_the_stable_offset() -> None:
    world = World()
    async with world.start() as ([streams], partition):
        one = Producer(world, 1)
        await one.send(streams, partition, b"a", b"b")
        await streams.append(partition, batch(b"plain"))
        assert await streams.delete_records(partition, 2) == 2
        found = await fetch(streams, partition, 2)
        assert (found.parts, found.last_stable_offset) == ([], 2)
        await one.end(partition, committed=False)
        assert seen_by_client(await fetch(streams, partition, 2), 2) == ([(2, b"plain")], 4)


async def test_producers_tell_where_their_open_transaction_begins() -> None:
    world = World()
    async with world.start() as ([streams], partition):
        one = Producer(world, 1)
        await streams.append(partition, batch(b"plain"))
        await one.send(streams, partition, b"a")
        [known] = await streams.producers(partition)
        assert (known.producer_id, known.open_offset, known.coordinator_epoch) == (1, 1, -1)
        await one.end(partition, committed=True)
        [known] = await streams.producers(partition)
        assert (known.epoch, known.open_offset, known.coordinator_epoch) == (1, -1, 0)


async def test_what_may_not_be_written() -> None:
    world = World()
    async with world.start() as ([streams], partition):
        one = Producer(world, 1)
        nobody = batch(b"a", transactional=True)
        with pytest.raises(InvalidRecords, match="producer id"):
            await streams.append(partition, nobody, transaction=InTransaction("t1", implicit=True))
        with pytest.raises(InvalidRecords, match="not served"):
            await streams.append(partition, batch(b"a", producer=(1, 0, 0), transactional=True))
        world.list.open["t1"] = None
        with pytest.raises(TransactionAbortable, match="open transaction"):
            await one.send(streams, partition, b"a")
        world.list.open["t1"] = 0
        await one.send(streams, partition, b"a")
        with pytest.raises(InvalidTransactionState, match="transaction open"):
            await streams.append(partition, batch(b"b", producer=(1, 0, 1)))


async def test_memory_below_the_frontier_does_not_serve_transactions() -> None:
    """Their markers may be gone, and rows that were aborted are not in the table."""
    world = World(StreamSettings(flush_interval_ms=1, view_check_ms=0, tail_cache_bytes=MIB))
    async with world.start() as ([streams], partition):
        one = Producer(world, 1)
        await streams.append(partition, batch(b"plain"))
        await one.send(streams, partition, b"a")
        await one.end(partition, committed=False)
        assert len((await fetch(streams, partition, 0)).aborted) == 1
        view = await world.brokers.tables.create(partition.topic_id, "orders", 1)
        await world.brokers.tables.commit(view, add=[], remove=[], frontier=(3,))
        await advance_frontier(world.brokers.store, partition, 3)
        for committed in (True, False):
            found = await fetch(streams, partition, 0, committed=committed)
            assert values(found.parts) == [b"plain"]
            found = await fetch(streams, partition, 1, committed=committed)
            assert (values(found.parts), list(found.aborted)) == ([], [])
            assert seen_by_client(found, 1) == ([], 3)


async def test_a_frontier_that_passes_what_a_broker_never_saw_holds_up_nobody() -> None:
    world = World(StreamSettings(flush_interval_ms=1, view_check_ms=0))
    async with world.start(2) as ([writer, reader], partition):
        one = Producer(world, 1)
        await one.send(writer, partition, b"a")
        assert (await fetch(reader, partition, 0, committed=False)).high_watermark == 1
        await one.end(partition, committed=False)
        view = await world.brokers.tables.create(partition.topic_id, "orders", 1)
        await world.brokers.tables.commit(view, add=[], remove=[], frontier=(2,))
        await advance_frontier(world.brokers.store, partition, 2)
        assert seen_by_client(await fetch(reader, partition, 0), 0) == ([], 2)
        await one.send(writer, partition, b"b")
        await one.end(partition, committed=True)
        assert seen_by_client(await fetch(reader, partition, 2, wait_ms=5_000), 2) == ([(2, b"b")], 4)


async def test_a_gap_up_to_the_stable_offset_is_passed() -> None:
    """All that is left of the table is a gap, and right behind it a transaction is open."""
    world = World(StreamSettings(flush_interval_ms=1, view_check_ms=0))
    async with world.start() as ([streams], partition):
        one, two = Producer(world, 1), Producer(world, 2)
        await one.send(streams, partition, b"a")
        await one.end(partition, committed=False)
        await two.send(streams, partition, b"b")
        view = await world.brokers.tables.create(partition.topic_id, "orders", 1)
        await world.brokers.tables.commit(view, add=[], remove=[], frontier=(2,))
        await advance_frontier(world.brokers.store, partition, 2)
        assert seen_by_client(await fetch(streams, partition, 0), 0) == ([], 2)
        assert (await fetch(streams, partition, 2)).parts == []


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_the_order_readers_get_what_was_committed_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    world = World(StreamSettings(flush_interval_ms=1, tail_cache_bytes=chance.choice((0, MIB))))
    async with world.start(2) as (brokers, partition):
        producers = [Producer(world, number) for number in range(1, 4)]
        pending: dict[int, list[tuple[int, bytes]]] = {each.producer_id: [] for each in producers}
        committed: list[tuple[int, bytes]] = []
        for number in range(60):
            streams = chance.choice(brokers)
            one = chance.choice(producers)
            step = chance.random()
            value = b"%d" % number
            if step < 0.2:
                appended = await streams.append(partition, batch(value))
                committed.append((appended.base_offset, value))
            elif step < 0.75:
                pending[one.producer_id].append((await one.send(streams, partition, value), value))
            else:
                is_committed = chance.random() < 0.5
                await one.end(partition, committed=is_committed)
                committed += pending[one.producer_id] if is_committed else []
                pending[one.producer_id] = []
            end = min((each[0][0] for each in pending.values() if each), default=None)
            expected = sorted(each for each in committed if end is None or each[0] < end)
            reader = chance.choice(brokers)
            records, stable = await all_committed(reader, partition, max_bytes=chance.choice((1, 400, MIB)))
            assert records == expected
            assert stable == (await reader.list_offset(partition, LATEST, committed=True)).offset
            assert end is None or stable == end
