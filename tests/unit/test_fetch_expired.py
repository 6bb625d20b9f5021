"""A file that is missing is an alarm if the present view names it. If the table has moved on, it is only haste."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from support.batches import batch
from support.streams import Cluster

from lakestream.errors import LakestreamError, ObjectMissing, Unavailable
from lakestream.model import StreamPartition, WrittenFile
from lakestream.stream import FetchPartition, Streams


def fetch_while(each_read: Callable[[Cluster, StreamPartition], Awaitable[None]]) -> LakestreamError | None:
    """The error of a fetch below the frontier, whose files are all gone when it looks for them."""

    async def whole() -> LakestreamError | None:
        cluster = Cluster()
        async with cluster.brokers(1) as [streams]:
            topic = await streams.create_topic("orders", 1, {})
            partition = StreamPartition(topic.topic_id, 0)
            await streams.append(partition, batch(b"a"))
            view = await cluster.tables.create(topic.topic_id, "orders", 1)
            file = WrittenFile("simulated://gone.parquet", 1, 1, 1, 0, 0, 0, 0, 0)
            await cluster.tables.commit(view, add=[file], remove=[], frontier=(1,))

            async def read(*_: Any, **__: Any) -> None:
                await each_read(cluster, partition)
                raise ObjectMissing("gone.parquet does not exist")

            return await _error(streams, partition, read)

    return asyncio.run(whole())


async def _error(streams: Streams, partition: StreamPartition, read: Any) -> LakestreamError | None:
    streams._fetcher._history.read = read  # type: ignore[method-assign]
    [fetched] = await streams.fetch([FetchPartition(partition, 0, 1000)], min_bytes=1, max_bytes=1000, max_wait_ms=0)
    return fetched.error


def test_a_missing_file_of_the_present_view_is_an_alarm() -> None:
    async def nothing(cluster: Cluster, partition: StreamPartition) -> None:
        """The table stays as it is."""

    assert isinstance(fetch_while(nothing), ObjectMissing)


def test_a_table_that_changes_faster_than_it_is_read_is_asked_for_again() -> None:
    async def rewrite(cluster: Cluster, partition: StreamPartition) -> None:
        view = await cluster.tables.load(partition.topic_id)
        await cluster.tables.commit(view, add=[], remove=[], frontier=view.frontier)

    assert isinstance(fetch_while(rewrite), Unavailable)
