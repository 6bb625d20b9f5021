"""What producers send is checked off the event loop, but for a little, and their order stays."""

import asyncio
import threading
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams

from lakestream.objects import Buffer
from lakestream.records import BatchInfo, BatchRules, OutOfRoom, take
from lakestream.stream.appending import checking

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
BOMB_BYTES = 20 << 20


def produce(*runs: bytes, topic: str = "t") -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": span(30_000),
        "topic_data": [
            {"name": topic, "partition_data": [{"index": index, "records": run} for index, run in enumerate(runs)]}
        ],
    }


@pytest.fixture(scope="module")
def bombs() -> dict[int, bytes]:
    """A few KB each, but for snappy; 20 MB when decompressed."""
    return {codec: batch(bytes(BOMB_BYTES), compression=codec) for codec in (GZIP, SNAPPY, LZ4, ZSTD)}


class Work:
    """Bytes that the event loop's thread was allowed to decompress, or walked through as they were."""

    def __init__(self) -> None:
        self.loop_thread = threading.get_ident()
        self.on_loop_bytes = self.aside_batches = 0

    def take(self, run: bytes, rules: BatchRules, now_ms: int, room_bytes: int) -> tuple[Buffer, BatchInfo]:
        if threading.get_ident() == self.loop_thread:
            self.on_loop_bytes += room_bytes if checking.codec_of(run) else len(run)
        else:
            self.aside_batches += 1
        return take(run, rules, now_ms, room_bytes)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    counted = Work()
    monkeypatch.setattr(checking, "take", counted.take)
    return counted


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_is_decompressed_aside(bombs: dict[int, bytes], work: Work, codec: int) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        streams.max_batch_bytes = 8 << 20
        await streams.topics.create("t", 1, {})
        answer = await client.ask(0, 9, produce(bombs[codec]))
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
        assert work.on_loop_bytes <= checking.LOOP_BYTES
        assert work.aside_batches == 1

    with_door(test)


def test_a_thousand_small_bombs_in_one_request_get_no_more_room_than_one(work: Work) -> None:
    bomb = batch(bytes(200_000), compression=ZSTD)
    assert len(bomb) < 200

    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1_000, {})
        await client.ask(0, 9, produce(*[bomb] * 1_000))
        assert work.on_loop_bytes <= checking.LOOP_BYTES
        assert work.aside_batches == 1_000

    with_door(test)


def test_a_large_request_without_compression_is_checked_aside(work: Work) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 4, {})
        await client.ask(0, 9, produce(*[batch(bytes(900_000))] * 4))
        assert (work.on_loop_bytes, work.aside_batches) == (0, 4)

    with_door(test)


def test_small_requests_stay_on_the_loop(work: Work) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 4, {})
        for codec in (0, GZIP, SNAPPY, LZ4, ZSTD):
            await client.ask(0, 9, produce(*[batch(b"value" * 100, compression=codec)] * 4))
        assert work.aside_batches == 0

    with_door(test)


def test_pipelined_batches_keep_their_order_whatever_each_costs(bombs: dict[int, bytes], work: Work) -> None:
    """As five requests of an idempotent producer: heavy and light ones take turns, and all are in flight at once."""

    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 1, {})
        runs = [batch(b"a"), bombs[GZIP], batch(b"b"), bombs[ZSTD], batch(b"c")]
        for run in runs:
            client.send(0, 9, produce(run))
        answers = [await client.receive() for _ in runs]
        assert [each.responses[0].partition_responses[0].base_offset for each in answers] == [0, 1, 2, 3, 4]
        [log] = [log for partition, log in streams.logs.items() if partition.topic_id == topic.topic_id]
        assert [stored[8:] for _, _, stored in log.batches] == [run[8:] for run in runs]
        assert work.aside_batches == 2

    with_door(test)


def test_others_are_served_while_a_bomb_is_decompressed(
    bombs: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()

    def slow(run: bytes, rules: BatchRules, now_ms: int, room_bytes: int) -> tuple[Buffer, BatchInfo]:
        if room_bytes < BOMB_BYTES and run is not None and checking.codec_of(run):
            raise OutOfRoom
        if checking.codec_of(run):
            assert held.wait(20)
        return take(run, rules, now_ms, room_bytes)

    monkeypatch.setattr(checking, "take", slow)

    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        other = await Client.connect(client.writer.get_extra_info("peername")[1])
        client.send(0, 9, produce(bombs[GZIP]))
        client.send(0, 9, produce(batch(b"later")))
        await asyncio.sleep(0.05)
        for _ in range(3):
            assert (await other.ask(0, 9, produce(batch(b"v")))).responses
        held.set()
        answers = [await client.receive() for _ in range(2)]
        assert [each.responses[0].partition_responses[0].base_offset for each in answers] == [3, 4]
        await other.close()

    with_door(test)


def test_a_compacted_topic_finds_records_without_a_key_in_any_batch(bombs: dict[int, bytes], work: Work) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {"cleanup.policy": "compact"})
        for run in (batch(b"v"), batch(b"v", compression=GZIP), bombs[GZIP]):
            [answer] = (await client.ask(0, 9, produce(run))).responses[0].partition_responses
            assert answer.error_code is ErrorCode.invalid_record
        [answer] = (
            (await client.ask(0, 9, produce(batch(b"v", key=b"k", compression=GZIP)))).responses[0].partition_responses
        )
        assert answer.error_code is ErrorCode.none

    with_door(test)
