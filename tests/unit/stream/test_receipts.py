"""What a broker writes down of its flushes: every extent, every refusal, every object that it gave up."""

from collections.abc import Sequence
from typing import Any

from support.clients.batches import batch
from support.worlds.brokers import BrokerWorld

from lakestream.errors import Unavailable
from lakestream.metadata.counters import raise_generation
from lakestream.metadata.log.commit import DUPLICATE
from lakestream.metadata.log.partition import raise_fence, read_extents
from lakestream.metadata.store import Outcome, Transaction
from lakestream.model import StreamPartition
from lakestream.stream import StreamSettings
from lakestream.stream.engine import StreamEngine
from lakestream.wal import WAL_PREFIX, Footer, Placed, Receipt, RefusedRange, SectionReceipt, read_footer


async def topic(streams: StreamEngine) -> list[StreamPartition]:
    return (await streams.create_topic("orders", 1, {})).each_partition()


async def footers(cluster: BrokerWorld) -> dict[str, Footer]:
    keys = [info.key async for info in cluster.objects.list(WAL_PREFIX)]
    return {key: await read_footer(cluster.objects, key) for key in keys}


async def told(cluster: BrokerWorld) -> dict[str, Receipt]:
    return {receipt.object_key: receipt for footer in (await footers(cluster)).values() for receipt in footer.receipts}


async def placed(cluster: BrokerWorld, partition: StreamPartition) -> list[tuple[str, Placed]]:
    return [
        (each.object_key, Placed(each.base_offset, each.end_offset - each.base_offset, each.position, each.length))
        for each in await read_extents(cluster.store, partition)
    ]


async def test_a_receipt_names_every_extent_of_a_section_and_what_was_refused() -> None:
    cluster = BrokerWorld(settings=StreamSettings(flush_interval_ms=20))
    async with cluster.brokers(1) as [streams]:
        [partition] = await topic(streams)
        producer_id, epoch = await streams.new_producer()
        first = batch(b"a", b"b", producer=(producer_id, epoch, 0))
        # One flush: the retry of its own first batch lies between two others.
        done = [streams.append(partition, run) for run in (first, batch(b"c"), first, first, batch(b"d"))]
        assert [(await each).base_offset for each in done] == [0, 2, 0, 0, 3]
    extents = await placed(cluster, partition)
    assert len(extents) == 2
    [(key, receipt)] = (await told(cluster)).items()
    assert {key} == {named for named, _ in extents}
    one, two = (each for _, each in extents)
    between = RefusedRange(one.position + one.length, 2 * len(first), DUPLICATE)
    assert receipt.sections == (SectionReceipt(partition, (one, two), (between,)),)


async def test_a_flush_that_its_mark_confirmed_has_its_receipt_too() -> None:
    cluster = BrokerWorld()
    async with cluster.brokers(1) as [streams]:
        [partition] = await topic(streams)
        transact, lost = cluster.store.transact, []

        async def silent(transactions: Sequence[Transaction]) -> list[Outcome]:
            outcomes: list[Outcome] = await transact(transactions)
            if any(each.shard.startswith("log/") for each in transactions) and not lost:
                lost.append(outcomes)
                raise Unavailable("the reply is lost")
            return outcomes

        cluster.store.transact = silent  # type: ignore[method-assign]
        assert (await streams.append(partition, batch(b"a", b"b"))).base_offset == 0
        assert lost
    [(key, place)] = await placed(cluster, partition)
    assert (await told(cluster))[key].sections == (SectionReceipt(partition, (place,)),)


async def test_an_object_that_replaces_another_gives_it_up_in_its_own_footer() -> None:
    """Of an upload that got no answer, and of a section below the fence."""
    cluster = BrokerWorld()
    async with cluster.brokers(1) as [streams]:
        [partition] = await topic(streams)
        put, silent = cluster.objects.put, []

        async def landed(key: str, parts: Sequence[Any], **more: Any) -> None:
            await put(key, parts, **more)
            if not silent:
                silent.append(key)
                raise Unavailable("the reply is lost")

        cluster.objects.put = landed  # type: ignore[method-assign]
        await streams.append(partition, batch(b"a"))
        [(second, _)] = await placed(cluster, partition)
        given_up = Receipt(silent[0], (SectionReceipt(partition),))
        assert given_up in (await footers(cluster))[second].receipts
        await raise_generation(cluster.store, 1)
        await raise_fence(cluster.store, partition, 2)
        await streams.append(partition, batch(b"b"))
        [_, (fourth, _)] = await placed(cluster, partition)
        [third] = (await footers(cluster)).keys() - {silent[0], second, fourth}
        assert Receipt(third, (SectionReceipt(partition),)) in (await footers(cluster))[fourth].receipts
