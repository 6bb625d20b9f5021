"""A row does not leave the stream's table before a derived one has seen it, unless that takes for ever."""

from pathlib import Path

from support.worlds.derived import DerivedWorld, derived_world

from lakestream.frontier.upkeep.maintenance import Maintenance, Step
from lakestream.metadata.topics.list import Topic

OLD = {"lakestream__table__retention__ms": "1000"}


async def kept(world: DerivedWorld, topic: Topic) -> int:
    view = await world.house.catalog.load(topic.topic_id)
    return sum(file.record_count for file in view.files)


async def maintained(world: DerivedWorld, topic: Topic, **settings: int) -> list[Step]:
    """As the pipeline does it, with topics as they are now."""
    lake = world.lake(**settings)
    topics = world.topics()
    [present] = [each for each in await topics.list() if each.topic_id == topic.topic_id]
    return await Maintenance(lake, topics, name="m", respect_leases=False).maintain(present)


async def test_retention_waits_until_a_row_was_seen(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(partitions=1, lakestream__table__upsert="_key", **OLD)
        await world.put(topic, 0, (b"a", b"1"), (b"b", b"1"))
        await world.settle()
        await world.put(topic, 0, (b"a", None), (b"c", b"1"))
        await world.house.tick()
        await maintained(world, topic, small_file_bytes=0, derived_wait_ms=1 << 60)
        assert await kept(world, topic) == 2
        await world.settle()
        assert await world.latest() == {b"b": b"1", b"c": b"1"}
        await maintained(world, topic, small_file_bytes=0, derived_wait_ms=1 << 60)
        assert await kept(world, topic) == 0
        assert await world.latest() == {b"b": b"1", b"c": b"1"}


async def test_retention_does_not_wait_for_ever(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(partitions=1, lakestream__table__upsert="_key", **OLD)
        await world.put(topic, 0, (b"a", b"1"))
        await world.settle()
        await world.put(topic, 0, (b"b", b"1"))
        await world.house.tick()
        await maintained(world, topic, derived_wait_ms=60_000)
        assert await kept(world, topic) == 0
        await world.settle()
        assert await world.latest() == {b"a": b"1"}


async def test_a_fold_leaves_what_was_not_seen(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(
            partitions=1,
            cleanup__policy="compact",
            min__cleanable__dirty__ratio="0",
            delete__retention__ms="0",
            lakestream__table__upsert="_key",
        )
        await world.put(topic, 0, (b"a", b"1"), (b"b", b"1"))
        await world.settle()
        await world.put(topic, 0, (b"a", None), (b"b", b"2"), (b"b", b"3"))
        await world.house.tick()
        for _ in range(4):
            await maintained(world, topic, small_file_bytes=0)
        assert await kept(world, topic) >= 3
        await world.settle()
        assert await world.latest() == {b"b": b"3"}
        for _ in range(4):
            await maintained(world, topic, small_file_bytes=0)
        assert await kept(world, topic) < 3
