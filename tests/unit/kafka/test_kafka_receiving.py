"""Requests that are announced and do not come: they cost what has arrived of them, and hold nobody up for long."""

import asyncio
import struct
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import SETTINGS, Client, door, frame, span, until, with_door
from support.fakes.loops import run
from support.fakes.streams import FakeStreams
from support.properties import examples

from lakestream.kafka.receiving import LARGE_BYTES, SLOW_BYTES_PER_S, SMALL_BYTES, Arrival, Pools
from lakestream.kafka.settings import KafkaSettings

MIB = 1 << 20


def produce(records: bytes, index: int = 0) -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": span(30_000),
        "topic_data": [{"name": "t", "partition_data": [{"index": index, "records": records}]}],
    }


@dataclass
class Sender:
    """Brings `size_bytes` whenever it has room, or stops after `stops_at`."""

    pools: Pools
    size_bytes: int
    stops_at: int
    cut: list[str] = field(default_factory=list)
    waiting: bool = False
    done: bool = False

    def __post_init__(self) -> None:
        self.arrival = Arrival(self.pools, self.go_on, self.cut_off)
        self.arrival.begin(self.size_bytes)

    def cut_off(self, reason: str) -> None:
        self.cut.append(reason)
        self.arrival.end()
        self.done = True

    def go_on(self) -> None:
        self.waiting = False

    def step(self) -> bool:
        """False: nothing to do."""
        if self.done or self.waiting:
            return False
        arrival = self.arrival
        if arrival.is_whole:
            arrival.end()
            self.done = True
            return True
        if arrival.received_bytes < arrival.room_bytes:
            before = arrival.received_bytes
            arrival.received_bytes = min(arrival.room_bytes, self.stops_at)
            return arrival.received_bytes > before
        self.waiting = True
        if arrival.grow():
            self.waiting = False
        return True


sizes = st.one_of(
    st.integers(1, SMALL_BYTES), st.integers(SMALL_BYTES, LARGE_BYTES), st.integers(LARGE_BYTES, 100 * MIB)
)


@examples(200)
@given(st.data(), st.lists(st.tuples(sizes, st.booleans()), min_size=1, max_size=40), st.integers(MIB, 64 * MIB))
def test_every_request_arrives_or_is_cut_off(data: st.DataObject, wanted: list[tuple[int, bool]], limit: int) -> None:
    """However large they are and in whatever order they come: nobody waits for ever, and the limit holds."""
    pools = Pools(limit)
    senders = [Sender(pools, size, size // 3 if stops else size) for size, stops in wanted]
    looks = 0
    while not all(sender.done or sender.stops_at < sender.size_bytes for sender in senders):
        order = data.draw(st.permutations(range(len(senders)))) if len(senders) < 8 else range(len(senders))
        moved = [senders[index].step() for index in order]
        for pool in (pools.medium, pools.large):
            assert 0 <= pool.used_bytes <= limit
        if not any(moved):
            looks += 1
            assert looks < 4 * len(senders), "somebody waits for ever"
            pools.look(1.0)
    assert not any(sender.cut for sender in senders if sender.stops_at == sender.size_bytes)
    for sender in senders:
        sender.arrival.end()
    assert pools.medium.used_bytes == pools.large.used_bytes == 0


def test_an_announcement_costs_nothing() -> None:
    pools = Pools(MIB)
    arrivals = [Arrival(pools, lambda: None, lambda _: None) for _ in range(1_000)]
    assert {arrival.begin(100 * MIB) for arrival in arrivals} == {SMALL_BYTES}
    assert pools.large.used_bytes == 0


def test_a_steady_producer_is_given_room_for_a_whole_request_at_once() -> None:
    pools = Pools(8 * MIB)
    arrival = Arrival(pools, lambda: None, lambda _: None)
    assert arrival.begin(MIB) == SMALL_BYTES
    arrival.received_bytes = MIB
    arrival.end()
    assert arrival.begin(MIB) == MIB
    arrival.received_bytes = MIB
    arrival.end()
    assert arrival.begin(100 * MIB) == MIB


def test_known_clients_do_not_queue_behind_strangers() -> None:
    pools = Pools(MIB)
    known = Arrival(pools, lambda: None, lambda _: None)
    known.begin(200_000)
    known.received_bytes = 200_000
    known.end()
    strangers = [Sender(pools, MIB, SMALL_BYTES + 1) for _ in range(100)]
    for _ in range(4):
        for stranger in strangers:
            stranger.step()
    assert known.begin(200_000) == SMALL_BYTES
    known.received_bytes = SMALL_BYTES
    assert not known.grow()
    for _ in range(2):
        pools.look(1.0)
    assert known.grow()


def test_a_slow_request_is_left_alone_while_nobody_needs_its_memory() -> None:
    pools = Pools(MIB)
    slow = Sender(pools, MIB, SMALL_BYTES + 1)
    for _ in range(5):
        slow.step()
        pools.look(1.0)
    assert not slow.cut


def test_who_brings_enough_is_never_cut_off() -> None:
    pools = Pools(MIB)
    busy = Arrival(pools, lambda: None, pytest.fail)
    busy.begin(4 * MIB)
    busy.received_bytes = SMALL_BYTES
    assert busy.grow()
    other = Sender(pools, MIB, MIB)
    while other.step():
        pass
    assert other.waiting
    for _ in range(2):
        busy.received_bytes += SLOW_BYTES_PER_S
        pools.look(1.0)
    busy.end()


def test_requests_that_never_come_hold_up_nobody() -> None:
    """They announce 1 MiB or 100 MiB. Some send nothing more at first, some enough to be given room; then all send a
    byte now and then."""

    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        port = client.writer.get_extra_info("peername")[1]
        strangers = [await Client.connect(port) for _ in range(100)]
        for number, stranger in enumerate(strangers):
            announced, sent = [MIB, 100 * MIB][number % 2], [0, 4_000, 70_000, 300_000][number // 2 % 4]
            stranger.writer.write(struct.pack(">ihhi", announced, 0, 9, 1) + bytes(sent))
        await asyncio.sleep(0.1)

        async def trickle() -> None:
            while True:
                await asyncio.sleep(0.2)
                for stranger in strangers:
                    stranger.writer.write(b"x")

        trickling = asyncio.create_task(trickle())
        try:
            for _ in range(5):
                answer = await asyncio.wait_for(client.ask(0, 9, produce(batch(bytes(700_000)))), 10)
                assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
                assert (await client.ask(18, 0, {})).error_code is ErrorCode.none
        finally:
            trickling.cancel()
            for stranger in strangers:
                stranger.writer.transport.abort()

    with_door(test, settings=_receiving(16 * MIB))


def _receiving(limit_bytes: int, **more: int) -> KafkaSettings:
    return KafkaSettings(groups=SETTINGS.groups, receive_bytes=limit_bytes, **more)


def test_several_requests_that_are_larger_than_all_memory_arrive_one_after_the_other() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        streams.max_batch_bytes = 16 * MIB
        await streams.topics.create("t", 1, {})
        port = client.writer.get_extra_info("peername")[1]
        clients = [await Client.connect(port) for _ in range(6)]
        request = produce(batch(bytes(12 * MIB)))
        answers = await asyncio.wait_for(asyncio.gather(*(each.ask(0, 9, request) for each in clients)), 30)
        assert sorted(each.responses[0].partition_responses[0].base_offset for each in answers) == list(range(6))
        for each in clients:
            await each.close()

    with_door(test, settings=_receiving(MIB))


def test_heartbeats_and_metadata_do_not_wait_for_the_budget_of_records() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        for _ in range(3):
            client.send(0, 9, produce(batch(bytes(20_000))))
        await until(lambda: streams.budget.exhausted)
        other = await Client.connect(client.writer.get_extra_info("peername")[1])
        async with asyncio.timeout(5):
            assert (await other.ask(3, 1, {"topics": None})).topics[0].name == "t"
            heartbeat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
            assert (await other.ask(12, 0, heartbeat)).error_code is not ErrorCode.none
        assert streams.budget.exhausted
        for _ in range(3):
            await client.receive()
        await other.close()

    with_door(test, budget_bytes=20_000, flush_ms=500)


def test_one_connection_gets_a_quarter_of_the_budget() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        one = len(frame(0, 9, produce(batch(bytes(10_000)))))
        for _ in range(12):
            client.send(0, 9, produce(batch(bytes(10_000))))
        await asyncio.sleep(0.1)
        assert streams.budget.used_bytes <= 30_000 + one
        other = await Client.connect(client.writer.get_extra_info("peername")[1])
        await asyncio.wait_for(other.ask(0, 9, produce(batch(bytes(10_000)))), 5)
        for _ in range(12):
            await client.receive()
        await other.close()

    with_door(test, budget_bytes=120_000, flush_ms=200)


def test_a_request_that_trickles_is_cut_off_in_time() -> None:
    async def work() -> None:
        async with door(settings=_receiving(MIB, frame_stall_ms=300)) as (_, server):
            client = await Client.connect(server.port)
            client.writer.write(struct.pack(">i", 1_000))

            async def trickle() -> None:
                while True:
                    client.writer.write(b"x")
                    await asyncio.sleep(0.05)

            trickling = asyncio.create_task(trickle())
            async with asyncio.timeout(5):
                assert await client.is_closed()
            trickling.cancel()
            await client.close()

    run(work())
