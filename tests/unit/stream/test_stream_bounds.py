"""A broker's parts start once, and what it remembers has a bound."""

import pytest
from support.clients.batches import batch
from support.worlds.brokers import BrokerWorld

from lakestream.stream import FetchPartition
from lakestream.stream.fetching import tails


async def test_an_appender_is_started_once_and_a_broker_registers_before_it_appends() -> None:
    """A second commit loop would commit flushes out of their order, and marks would not tell their outcomes."""
    cluster = BrokerWorld()
    async with cluster.brokers(1) as [streams]:
        with pytest.raises(RuntimeError, match="one commit loop"):
            await streams.start()
        [partition] = (await streams.create_topic("orders", 1, {})).each_partition()
        assert (await streams.append(partition, batch(b"a"))).base_offset == 0


async def test_tails_that_nobody_asks_for_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "_TAILS_KEPT", 3)
    cluster = BrokerWorld()
    async with cluster.brokers(1) as [streams]:
        partitions = (await streams.create_topic("wide", 10, {})).each_partition()
        known = streams._tails
        await known.refresh(partitions)
        assert all(map(known.knows, partitions))
        monkeypatch.setattr(tails, "_IDLE_S", 0.0)
        await known.refresh(partitions[:1])
        assert sum(map(known.knows, partitions)) == 3
        assert known.knows(partitions[0])
        monkeypatch.setattr(tails, "_IDLE_S", 600.0)
        requests = [FetchPartition(partition, 0, 1000) for partition in partitions]
        fetched = await streams.fetch(requests, min_bytes=0, max_bytes=1000, max_wait_ms=0)
        assert [each.error for each in fetched] == [None] * 10
