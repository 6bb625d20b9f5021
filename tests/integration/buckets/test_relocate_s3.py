"""A bucket in S3 that is copied under another address."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.servers.s3 import environment
from support.worlds.brokers import BrokerWorld
from support.worlds.lake import LakeWorld

from lakestream import objects
from lakestream.errors import RequestError
from lakestream.metadata.topics.list import Topics
from lakestream.node.bucket import recover_store, relocate_bucket
from lakestream.node.storage.backends import open_backends
from lakestream.node.storage.tables import open_catalog
from lakestream.settings import Settings, load

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")


def at(url: str, store: Path) -> Settings:
    return load(None, {}, {"bucket_url": url, "metadata_url": f"sqlite://{store}"})


@asynccontextmanager
async def lakehouse(settings: Settings) -> AsyncIterator[LakeWorld]:
    async with open_backends(settings) as backends, open_catalog(backends) as catalog:
        cluster = BrokerWorld(backends.runtime, backends.store, backends.objects, catalog)
        async with cluster.brokers(1) as [streams]:
            yield LakeWorld(cluster, catalog, streams)


async def test_a_copy_in_s3_lives_at_its_own_address(
    aws_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(aws_address).items():
        monkeypatch.setenv(name, value)

    async def content(url: str) -> dict[str, bytes]:
        store = objects.open(url)
        return {info.key: await store.get(info.key) async for info in store.list("")}

    one, two = "s3://lake/one", "s3://lake/two"
    async with lakehouse(at(f"{one}/", tmp_path / "one.db")) as house:
        topic = await house.streams.create_topic("orders", 1, {})
        await house.produce(topic, 0, b"a", b"b")
        assert (await house.tick()).record_count == 2
        await house.produce(topic, 0, b"c")
    async with open_backends(at(one, tmp_path / "one.db")):
        pass
    before = await content(one)
    copy = objects.open(two)
    for key, data in before.items():
        await copy.put(key, [data])
    shutil.copy(tmp_path / "one.db", tmp_path / "two.db")
    for store in ("one.db", "two.db"):
        with pytest.raises(RequestError, match="relocate"):
            async with open_backends(at(two, tmp_path / store)):
                pass
    with pytest.raises(RequestError, match=r"is it the right one|relocate"):
        async with open_backends(at("s3://lake/three", tmp_path / "two.db")):
            pass
    await relocate_bucket(at(two, tmp_path / "two.db"), new_cluster=True, old="", tell=lambda _: None)
    async with lakehouse(at(two, tmp_path / "two.db")) as house:
        await house.produce(topic, 0, b"d")
        assert (await house.tick()).record_count == 2
        assert await house.consume(topic, 0) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
        await house.collect()
    assert await content(one) == before
    await recover_store(at(two, tmp_path / "three.db"), cluster="", tell=lambda _: None)
    async with lakehouse(at(two, tmp_path / "three.db")) as house:
        [found] = await Topics(house.cluster.store, house.cluster.runtime).list()
        assert found.name == "orders"
        assert await house.consume(topic, 0) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
