"""Bytes that are not requests: their connection is closed, nobody else notices, nothing is written."""

import asyncio
import logging
import struct

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, door, frame, span, until
from support.fakes.loops import run
from support.fakes.streams import FakeStreams
from support.properties import examples

from lakestream.coordination.settings import GroupSettings
from lakestream.kafka.apis.registry import APIS
from lakestream.kafka.settings import KafkaSettings

SMALL = KafkaSettings(max_frame_bytes=100_000, groups=GroupSettings(initial_rebalance_delay_ms=1))
quick = examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
PRODUCE = {
    "transactional_id": None,
    "acks": -1,
    "timeout": span(1000),
    "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"v")}]}],
}
_VERSIONS = st.sampled_from(sorted(APIS)).flatmap(
    lambda key: st.tuples(st.just(key), st.integers(APIS[key].min_version, APIS[key].max_version))
)


async def _survives(junk: list[bytes], *, eof: bool = True) -> FakeStreams:
    """Sends each piece on a connection of its own, beside a client that must not notice."""
    async with door(settings=SMALL) as (streams, server):
        await streams.topics.create("t", 1, {})
        witness = await Client.connect(server.port)
        assert (await witness.ask(18, 0, {})).error_code is ErrorCode.none
        for piece in junk:
            client = await Client.connect(server.port)
            client.writer.write(piece)
            if eof:
                client.writer.write_eof()
                try:
                    async with asyncio.timeout(5):
                        while await client.reader.read(1 << 16):
                            pass
                except ConnectionError:
                    pass
            else:
                assert await client.is_closed()
            await client.close()
            assert (await witness.ask(3, 1, {"topics": None})).topics[0].name == "t"
        await witness.close()
    await until(lambda: not streams.budget.used_bytes)
    return streams


@quick
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_random_bytes(junk: list[bytes]) -> None:
    assert run(_survives(junk)).appended == 0


@quick
@given(st.lists(st.tuples(_VERSIONS, st.binary(max_size=200)), min_size=1, max_size=8))
def test_random_bodies(requests: list[tuple[tuple[int, int], bytes]]) -> None:
    """A right header, then anything: flexible and old versions, with lengths and counts that lie."""
    junk = []
    for (key, version), body in requests:
        header = struct.pack(">hhih", key, version, 7, -1) + body
        junk.append(struct.pack(">i", len(header)) + header)
    assert run(_survives(junk)).appended == 0


@quick
@given(st.sampled_from([3, 8, 9, 12]), st.data())
def test_a_produce_request_that_is_cut_short_writes_nothing(version: int, data: st.DataObject) -> None:
    whole = frame(0, version, PRODUCE)
    cut = data.draw(st.integers(4, len(whole) - 1))
    honest = struct.pack(">i", cut - 4) + whole[4:cut]
    assert run(_survives([honest, whole[:cut]])).appended == 0


@quick
@given(st.sampled_from([3, 9]), st.integers(12, 40), st.binary(min_size=1, max_size=4))
def test_lengths_that_lie(version: int, position: int, lie: bytes) -> None:
    whole = bytearray(frame(0, version, PRODUCE))
    whole[position : position + len(lie)] = lie
    run(_survives([bytes(whole)]))


@pytest.mark.parametrize("size", [-1, -(2**31), 100_001, 2**31 - 1, 0x47455420])
def test_impossible_sizes_close_at_once(size: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(_survives([struct.pack(">i", size) + b"rest"], eof=False))
    assert len([line for line in caplog.records if str(size) in line.getMessage()]) == 1


@pytest.mark.parametrize("count", [2**31 - 1, 2**30, 10**6])
def test_counts_that_lie_cost_no_memory(count: int) -> None:
    """A legacy array says how many elements follow: nobody believes it before they are there."""
    header = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", count)
    run(_survives([struct.pack(">i", len(header)) + header], eof=False))


def test_a_client_that_stops_inside_a_request_is_closed() -> None:
    async def work() -> None:
        async with door(settings=KafkaSettings(frame_stall_ms=100)) as (streams, server):
            client = await Client.connect(server.port)
            client.writer.write(struct.pack(">i", 1_000_000) + b"only this")
            async with asyncio.timeout(5):
                assert await client.is_closed()
            assert streams.budget.used_bytes == 0
            await client.close()

    run(work())


def test_an_empty_frame_closes() -> None:
    run(_survives([struct.pack(">i", 0)], eof=False))
