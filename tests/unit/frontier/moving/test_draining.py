"""The last pass of a pipeline that stops."""

import asyncio
from pathlib import Path

import msgspec
from support.worlds.lake import LakeWorld, lake_world

from lakestream import objects
from lakestream.frontier.moving.draining import Drained, drain
from lakestream.frontier.settings import PipelineSettings


async def drained(house: LakeWorld, **settings: int) -> Drained:
    cluster = house.cluster
    chosen = msgspec.structs.replace(PipelineSettings(), **settings)
    return await drain(cluster.store, house.catalog, cluster.objects, cluster.runtime, chosen, asyncio.to_thread)


async def test_what_was_acked_is_in_its_table_whatever_its_interval(tmp_path: Path) -> None:
    async with lake_world(objects.open(f"file://{tmp_path}/bucket")) as house:
        slow = {"lakestream.table.commit.interval.ms": "3600000"}
        topics = [await house.streams.create_topic(name, 2, slow) for name in ("a", "b")]
        for topic in topics:
            for partition in (0, 1):
                await house.produce(topic, partition, b"x", b"y")
        assert await drained(house) == Drained(8, {})
        for topic in topics:
            assert (await house.catalog.load(topic.topic_id)).frontier == (2, 2)
        assert await drained(house) == Drained(0, {})


async def test_what_did_not_get_into_its_table_is_told(tmp_path: Path) -> None:
    async with lake_world(objects.open(f"file://{tmp_path}/bucket")) as house:
        [a, b] = [await house.streams.create_topic(name, 1, {}) for name in "ab"]
        await house.produce(a, 0, b"x", b"y")
        await house.produce(b, 0, b"x")
        late = await drained(house, drain_ms=1)
        assert (late.record_count, late.left, late.summary) == (0, {"a": 2, "b": 1}, "2 of a, 1 of b")
        [lost] = [path for path in (tmp_path / "bucket/wal").rglob("*.wal") if b"x" in path.read_bytes()][:1]
        data = lost.read_bytes()
        lost.write_bytes(b"!" + data[1:])
        [left] = (await drained(house)).left
        lost.write_bytes(data)
        assert left in ("a", "b")
        assert (await drained(house)).left == {}
