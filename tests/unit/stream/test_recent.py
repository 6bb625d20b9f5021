"""What was appended lately comes from memory though it is in the table, as long as nobody has changed its rows."""

from typing import Any

from support.clients.batches import batch
from support.clients.records import parse
from support.tables.simulated import SimulatedTables
from support.worlds.brokers import BrokerWorld

from lakestream.model import StreamPartition, WrittenFile
from lakestream.records import stamp
from lakestream.stream import FetchPartition, StreamSettings
from lakestream.stream.engine import StreamEngine
from lakestream.table import History

SETTINGS = StreamSettings(flush_interval_ms=4, view_check_ms=0)


def file(name: str, count: int) -> WrittenFile:
    return WrittenFile(f"simulated://{name}.parquet", 0, 1, count, 0, 0, 0, count - 1, 0)


async def fetched(streams: StreamEngine, partition: StreamPartition, offset: int) -> list[bytes | None]:
    wanted = FetchPartition(partition, offset, 1 << 20)
    [found] = await streams.fetch([wanted], min_bytes=1, max_bytes=1 << 20, max_wait_ms=0)
    assert found.error is None, found.error
    return [record.value for record in parse(found.parts) if record.offset >= offset]


class Tables:
    """Stands for the files, which the simulated table does not have: says how often they were read."""

    reads = 0

    def watch(self, streams: StreamEngine) -> None:
        async def read(*_: Any, offset: int, **__: Any) -> History:
            self.reads += 1
            data = bytearray(batch(b"from the table"))
            return History([memoryview(data)], stamp(data, offset))

        streams._fetcher._history.read = read  # type: ignore[method-assign]


async def test_rows_that_only_merges_have_moved_come_from_memory() -> None:
    cluster, tables = BrokerWorld(settings=SETTINGS), Tables()
    async with cluster.brokers(1) as [streams]:
        tables.watch(streams)
        [partition] = (await streams.create_topic("orders", 1, {})).each_partition()
        for number in range(4):
            await streams.append(partition, batch(b"%d" % number))
        view = await cluster.tables.create(partition.topic_id, "orders", 1)
        view = await cluster.tables.commit(view, add=[file("a", 2)], remove=[], frontier=(2,))
        view = await cluster.tables.commit(view, add=[file("b", 2)], remove=[], frontier=(4,))
        assert await fetched(streams, partition, 1) == [b"1", b"2", b"3"]
        await cluster.tables.commit(view, add=[file("c", 4)], remove=view.files, frontier=(4,))
        assert await fetched(streams, partition, 0) == [b"0", b"1", b"2", b"3"]
        assert tables.reads == 0


async def test_rows_that_somebody_may_have_changed_come_from_the_table() -> None:
    cluster, tables = BrokerWorld(settings=SETTINGS), Tables()
    async with cluster.brokers(1) as [streams]:
        tables.watch(streams)
        [partition] = (await streams.create_topic("orders", 1, {})).each_partition()
        for number in range(2):
            await streams.append(partition, batch(b"%d" % number))
        view = await cluster.tables.create(partition.topic_id, "orders", 1)
        view = await cluster.tables.commit(view, add=[file("a", 2)], remove=[], frontier=(2,))
        assert isinstance(cluster.tables, SimulatedTables)
        view = await cluster.tables.commit(view, add=[file("e", 2)], remove=view.files, frontier=(2,), outside=True)
        assert await fetched(streams, partition, 0) == [b"from the table"]
        await streams.append(partition, batch(b"2"))
        await cluster.tables.commit(view, add=[file("b", 1)], remove=[], frontier=(3,))
        assert await fetched(streams, partition, 1) == [b"from the table"]
        assert await fetched(streams, partition, 2) == [b"2"]
        assert tables.reads == 2


async def test_a_broker_that_appended_nothing_reads_the_table() -> None:
    cluster, tables = BrokerWorld(settings=SETTINGS), Tables()
    async with cluster.brokers(2) as [streams, other]:
        tables.watch(other)
        [partition] = (await streams.create_topic("orders", 1, {})).each_partition()
        await streams.append(partition, batch(b"0"))
        view = await cluster.tables.create(partition.topic_id, "orders", 1)
        await cluster.tables.commit(view, add=[file("a", 1)], remove=[], frontier=(1,))
        assert await fetched(other, partition, 0) == [b"from the table"]
