"""A file that is missing is an alarm if the present view names it. If the table has moved on, it is only haste."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.clients.batches import batch
from support.worlds.brokers import BrokerWorld

from lakestream.errors import LakestreamError, ObjectMissing, Unavailable
from lakestream.model import StreamPartition, WrittenFile
from lakestream.stream import FetchPartition
from lakestream.stream.engine import StreamEngine
from lakestream.stream.fetching.offsets import OffsetAt

Ask = Callable[[StreamEngine, StreamPartition, Any], Awaitable[LakestreamError | None]]


async def ask_while(
    each_read: Callable[[BrokerWorld, StreamPartition], Awaitable[None]], ask: Ask
) -> LakestreamError | None:
    """The error of what is asked for below the frontier, where all files are gone when somebody looks for them."""

    cluster = BrokerWorld()
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

        return await ask(streams, partition, read)


async def fetch(streams: StreamEngine, partition: StreamPartition, read: Any) -> LakestreamError | None:
    streams._fetcher._history.read = read  # type: ignore[method-assign]
    [fetched] = await streams.fetch([FetchPartition(partition, 0, 1000)], min_bytes=1, max_bytes=1000, max_wait_ms=0)
    return fetched.error


async def find(streams: StreamEngine, partition: StreamPartition, read: Any) -> LakestreamError | None:
    streams._offsets._history.first_at_or_after = read  # type: ignore[method-assign]
    try:
        await streams.list_offset(partition, 5)
    except LakestreamError as error:
        return error
    return None


asked = pytest.mark.parametrize("ask", [fetch, find])


@asked
async def test_a_missing_file_of_the_present_view_is_an_alarm(ask: Ask) -> None:
    async def nothing(cluster: BrokerWorld, partition: StreamPartition) -> None:
        """The table stays as it is."""

    assert isinstance(await ask_while(nothing, ask), ObjectMissing)


@asked
async def test_a_table_that_changes_faster_than_it_is_read_is_asked_for_again(ask: Ask) -> None:
    async def rewrite(cluster: BrokerWorld, partition: StreamPartition) -> None:
        view = await cluster.tables.load(partition.topic_id)
        await cluster.tables.commit(view, add=[], remove=[], frontier=view.frontier)

    assert isinstance(await ask_while(rewrite, ask), Unavailable)


async def test_an_offset_is_looked_for_again_where_the_table_has_moved_on() -> None:
    async def ask(streams: StreamEngine, partition: StreamPartition, gone: Any) -> LakestreamError | None:
        history, reads = streams._offsets._history, list[int]()

        async def first_at_or_after(*_: Any, **__: Any) -> tuple[int, int]:
            reads.append(1)
            if len(reads) < 3:
                await gone()
            return 0, 7

        history.first_at_or_after = first_at_or_after  # type: ignore[method-assign]
        assert await streams.list_offset(partition, 5) == OffsetAt(0, 7)
        return None

    async def rewrite(cluster: BrokerWorld, partition: StreamPartition) -> None:
        view = await cluster.tables.load(partition.topic_id)
        await cluster.tables.commit(view, add=[], remove=[], frontier=view.frontier)

    assert await ask_while(rewrite, ask) is None
