"""Which rows a pass reads again before they are saved into the bucket."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from support.worlds.memory import MemoryWorld, Producer

from lakestream.bucket import rows
from lakestream.bucket.rows import SavedRows
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metadata.feed import Touches
from lakestream.metadata.log.head import shard_of
from lakestream.metadata.store import Address, Transaction


class Counted:
    """A store that remembers which shards were read."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, addresses: Sequence[Address]) -> Any:
        self.read += [address.shard for address in addresses]
        return await self._inner.get(addresses)

    async def range(self, shard: str, *args: Any, **kwargs: Any) -> Any:
        self.read.append(shard)
        return await self._inner.range(shard, *args, **kwargs)


def everything(world: MemoryWorld) -> dict[tuple[str, str], bytes]:
    """What belongs into the bucket, straight from the store."""
    return {
        (shard, entry.key): entry.value
        for shard, found in world.store._shards.items()  # type: ignore[attr-defined]
        for entry in found.entries.values()
        if not shard.startswith(("brokers", "feed")) and not entry.key.startswith("x/")
    }


async def test_a_pass_reads_what_was_touched_and_the_others_in_turn() -> None:
    world = MemoryWorld()
    created = [await world.create(f"t{number:03d}", 2) for number in range(100)]
    await Brokers(world.store, ttl_ms=86_400_000).register(Broker(1, "h", 1, None, "one"))
    for topic in created:
        table = Transaction(f"table/{topic.topic_id.hex}", {}, {"pointer": b"at " + topic.name.encode()})
        await world.store.transact([table])
    touches, producer, store = Touches(world.store, "one"), Producer(world, "one"), Counted(world.store)
    await touches.begin()
    saved = SavedRows(store, world.runtime)  # type: ignore[arg-type]

    def known() -> dict[tuple[str, str], bytes]:
        return {(row.shard, row.key): row.value for row in saved.rows()}

    with patch.object(saved._heads_turn, "_count", 20), patch.object(saved._tables_turn, "_count", 10):
        assert await saved.refresh()
        assert known() == everything(world)
        saved.saved()
        store.read.clear()
        assert not await saved.refresh()
        assert sum(shard.startswith("log/") for shard in store.read) == 20
        assert sum(shard.startswith("table/") for shard in store.read) == 10
        partition = created[77].each_partition()[1]
        await producer.append({partition: [b"x"]})
        touches.touch(partition.topic_id)
        await touches.write()
        assert await saved.refresh()
        assert known() == everything(world)
        saved.saved()
        # Nobody tells of these: their turn comes.
        await producer.append({created[33].each_partition()[0]: [b"y"]})
        await world.store.transact([Transaction(f"table/{created[50].topic_id.hex}", {}, {"pointer": b"moved"})])
        for _ in range(11):
            await saved.refresh()
        assert known() == everything(world)


async def test_what_is_deleted_and_what_is_new_is_seen_at_once() -> None:
    world = MemoryWorld()
    first = await world.create("first", 2)
    saved = SavedRows(world.store, world.runtime)
    with patch.object(rows, "_HEADS_IN_TURN", 1):
        await saved.refresh()
        second = await world.create("second", 2)
        await saved.refresh()
        shards = {row.shard for row in saved.rows()}
        assert {shard_of(partition) for topic in (first, second) for partition in topic.each_partition()} <= shards
        topics = saved._topics
        await topics.drop_logs(await topics.delete(first.topic_id))
        await saved.refresh()
        shards = {row.shard for row in saved.rows()}
        assert not {shard_of(partition) for partition in first.each_partition()} & shards


async def test_what_would_be_wrong_after_a_loss_is_not_saved() -> None:
    """States of transactions that are a minute old, and offsets that wait for an end which nobody remembers."""
    world = MemoryWorld()
    for shard, key in (
        ("txn/t", "state"),
        ("open-txn/03", "t"),
        ("group/g", "lease"),
        ("group/g", "p/07/01/o/x"),
        ("group/g", "o/x"),
    ):
        await world.store.transact([Transaction(shard, {}, {key: b"row"})])
    saved = SavedRows(world.store, world.runtime)
    await saved.refresh()
    assert [(row.shard, row.key) for row in saved.rows()] == [("group/g", "o/x")]
