"""The log start: moved by DeleteRecords and retention, followed by every broker."""

import pytest
from support.clients.batches import batch
from support.clients.records import parse
from support.worlds.brokers import BrokerWorld

from lakestream.errors import OffsetOutOfRange, UnknownStream
from lakestream.metadata.log.partition import advance_frontier, advance_log_start, read_head
from lakestream.model import StreamPartition
from lakestream.stream import EARLIEST, Fetched, FetchPartition, StreamSettings
from lakestream.stream.engine import StreamEngine


async def _fetch(streams: StreamEngine, partition: StreamPartition, offset: int) -> Fetched:
    [fetched] = await streams.fetch(
        [FetchPartition(partition, offset, 1 << 20)], min_bytes=1, max_bytes=1 << 20, max_wait_ms=0
    )
    return fetched


async def test_deleted_records_are_served_by_no_broker_though_they_are_in_the_tail() -> None:
    cluster = BrokerWorld()
    async with cluster.brokers(2) as (here, there):
        topic = await here.create_topic("t", 1, {})
        [partition] = topic.each_partition()
        for number in range(4):
            await here.append(partition, batch(b"%d-a" % number, b"%d-b" % number))
        assert (await _fetch(there, partition, 0)).error is None
        assert await here.delete_records(partition, 5) == 5
        assert await there.delete_records(partition, 3) == 5, "it never goes back"
        for broker in (here, there):
            assert isinstance((await _fetch(broker, partition, 4)).error, OffsetOutOfRange)
            assert (await broker.list_offset(partition, EARLIEST)).offset == 5
            fetched = await _fetch(broker, partition, 5)
            assert fetched.log_start == 5
            assert [record.value for record in parse(fetched.parts) if record.offset >= 5] == [
                b"2-b",
                b"3-a",
                b"3-b",
            ]
        with pytest.raises(OffsetOutOfRange):
            await here.delete_records(partition, 9)
        assert await here.delete_records(partition, None) == 8
        assert (await _fetch(here, partition, 8)).parts == []
        assert (await here.append(partition, batch(b"next"))).base_offset == 8
        assert [record.value for record in parse((await _fetch(here, partition, 8)).parts)] == [b"next"]


async def test_a_broker_that_reads_on_below_the_end_learns_of_a_new_log_start(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = BrokerWorld()
    async with cluster.brokers(1) as [broker]:
        [partition] = (await broker.create_topic("t", 1, {})).each_partition()
        for number in range(4):
            await broker.append(partition, batch(b"%d" % number))
        assert (await _fetch(broker, partition, 0)).log_start == 0
        await advance_log_start(cluster.store, partition, 2, in_tail=True)
        assert (await _fetch(broker, partition, 1)).error is None, "its knowledge is fresh enough"
        monkeypatch.setattr("lakestream.stream.fetching.fetch.HEAD_CHECK_S", -1.0)
        assert isinstance((await _fetch(broker, partition, 1)).error, OffsetOutOfRange)


async def test_nobody_is_led_over_rows_that_retention_took_out_of_the_table() -> None:
    """A head that is fresh enough may be older than the view, and lack the log start that passed them first."""
    cluster = BrokerWorld(settings=StreamSettings(flush_interval_ms=4, view_check_ms=0))
    async with cluster.brokers(1) as [broker]:
        topic = await broker.create_topic("t", 1, {})
        [partition] = topic.each_partition()
        await broker.append(partition, batch(b"old"))
        await broker.append(partition, batch(b"young"))
        view = await cluster.tables.create(topic.topic_id, "t", 1)
        assert (await _fetch(broker, partition, 0)).error is None
        await cluster.tables.commit(view, add=[], remove=[], frontier=(1,))
        await advance_frontier(cluster.store, partition, 1)
        await advance_log_start(cluster.store, partition, 1)
        assert isinstance((await _fetch(broker, partition, 0)).error, OffsetOutOfRange)
        assert [record.value for record in parse((await _fetch(broker, partition, 1)).parts)] == [b"young"]


async def test_retention_stops_at_the_frontier_and_goes_on_with_it() -> None:

    async def _head(cluster: BrokerWorld, partition: StreamPartition) -> object:
        present = await read_head(cluster.store, partition)
        assert present is not None
        return present.head

    cluster = BrokerWorld()
    async with cluster.brokers(1) as [broker]:
        [partition] = (await broker.create_topic("t", 1, {})).each_partition()
        await broker.append(partition, batch(*[b"x"] * 6))
        assert await advance_log_start(cluster.store, partition, 4) == ((await _head(cluster, partition)), False)
        await advance_frontier(cluster.store, partition, 6)
        head, moved = await advance_log_start(cluster.store, partition, 4)
        assert (head.log_start, moved) == (4, True)
        head, moved = await advance_log_start(cluster.store, partition, 3)
        assert (head.log_start, moved) == (4, False)
    with pytest.raises(UnknownStream):
        await advance_log_start(cluster.store, StreamPartition(partition.topic_id, 7), 1)
