"""What becomes of derived tables: made, renamed, put away, left alone by engines, tidied."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table.update import SetPropertiesUpdate
from support.fakes.authorizers import OnlyTopics
from support.worlds.derived import DerivedWorld, derived_world
from support.worlds.memory import Crash, Fuse

from lakestream import objects
from lakestream.access import ANONYMOUS, Operation
from lakestream.bucket.rehoming import Addresses, Rehoming
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.engines.rights import TableRights
from lakestream.errors import InvalidSetting, NotAuthorized, StorageError, TableRefused
from lakestream.frontier.derived.applying import commit_changed
from lakestream.frontier.derived.collecting import DerivedOrphans
from lakestream.metadata.names.pointers import Pointer, Pointers
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Topic
from lakestream.table.deriving.changes import RowChanges
from lakestream.table.deriving.naming import parse_derived
from lakestream.table.deriving.state import StateFiles
from lakestream.table.parquet.arrow import arrow_schema

LATEST = TableName(("default",), "orders__latest")


async def filled(world: DerivedWorld, **configs: str) -> Topic:
    topic = await world.topic(**({"lakestream__table__upsert": "_key"} | configs))
    await world.put(topic, 0, (b"a", b"1"), (b"b", b"1"))
    await world.settle()
    return topic


async def names(world: DerivedWorld) -> list[str]:
    return await world.house.catalog.commits.pointers.tables(("default",))  # type: ignore[union-attr]


async def test_engines_read_and_do_not_write(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await filled(world)
        engines = world.house.catalog.engines  # type: ignore[union-attr]
        assert (await engines.load(LATEST)).metadata.properties["lakestream.derived-from"] == str(topic.topic_id)
        change = [SetPropertiesUpdate(updates={"a": "b"})]
        for refused in (
            engines.commit(LATEST, [], change),
            engines.drop(LATEST, purge=False),
            engines.drop(LATEST, purge=True),
            engines.rename(LATEST, TableName(("default",), "mine")),
        ):
            with pytest.raises(TableRefused, match=r"derived from the table of a topic.*lakestream\.table\.upsert"):
                await refused
        with pytest.raises(InvalidSetting, match="derived from the table of another topic"):
            await world.house.catalog.adoptable(LATEST, 1)


async def test_a_deleted_topic_leaves_a_table_that_is_its_owners(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await filled(world)
        await world.house.streams.delete_topic(topic.topic_id)
        [name] = (await world.derive()).put_away
        assert name.startswith("default.orders__latest__")
        assert await world.tables.every() == []
        left = TableName(("default",), name.removeprefix("default."))
        engines = world.house.catalog.engines  # type: ignore[union-attr]
        await engines.commit(left, [], [SetPropertiesUpdate(updates={"a": "b"})])
        again = await filled(world)
        assert await world.latest() == {b"a": b"1", b"b": b"1"}
        assert {"orders", "orders__latest", left.name} < {*await names(world)}
        assert again.topic_id != topic.topic_id


async def test_what_is_not_asked_for_is_put_away_and_made_anew_when_it_is(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await filled(world)
        await world.configure(topic, lakestream__table__upsert="")
        assert len((await world.derive()).put_away) == 1
        assert "orders__latest" not in await names(world)
        await world.put(topic, 0, (b"a", b"2"))
        await world.configure(topic, lakestream__table__upsert="_key")
        await world.settle()
        assert await world.latest() == {b"a": b"2", b"b": b"1"}
        await world.configure(topic, lakestream__table__order__column="_timestamp")
        assert len((await world.derive()).put_away) == 1
        await world.settle()
        assert await world.latest() == {b"a": b"2", b"b": b"1"}


async def test_a_key_column_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(lakestream__table__upsert="customer")
        await world.put(topic, 0, (b"a", b"1"))
        await world.house.tick()
        [(name, error)] = (await world.deriver().run()).failures
        assert name == "orders"
        assert isinstance(error, StorageError)
        assert "customer was to be a key column, and there is none of that name" in str(error)
        await world.configure(topic, lakestream__table__upsert="_key")
        await world.settle()
        assert await world.latest() == {b"a": b"1"}


async def test_a_topic_of_that_name_has_another_table(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        await filled(world)
        other = await world.topic("orders__latest", partitions=1)
        await world.put(other, 0, (b"x", b"y"))
        await world.settle()
        assert await world.latest() == {b"a": b"1", b"b": b"1"}
        table = (await world.house.catalog.load(other.topic_id)).table
        assert table == f"default.orders__latest_{other.topic_id.hex[:8]}"


async def test_a_table_follows_the_name_of_its_streams(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await filled(world)
        pointers = world.house.catalog.commits.pointers  # type: ignore[union-attr]
        await pointers.rename(topic.topic_id, TableName(("default",), "sales"))
        await world.put(topic, 0, (b"c", b"1"))
        await world.settle()
        assert {"sales", "sales__latest"} <= {*await names(world)}
        assert await world.latest() == {b"a": b"1", b"b": b"1", b"c": b"1"}


async def test_files_that_a_crash_left_go_and_no_other(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await filled(world)
        for number in range(8):
            await world.put(topic, 0, (b"a", b"%d" % number))
            await world.house.tick()
            with pytest.raises(Crash):
                await world.deriver(_until_stored()).run()
            await world.settle()
        stored = {path.name for path in (tmp_path / "bucket").rglob("*.parquet") if parse_derived(path.name)}
        found = await world.view()
        assert found is not None
        named = {path.rsplit("/", 1)[-1] for path in (await world.tables.named(found.row)).paths}
        assert len(stored - named) == 8
        orphans = DerivedOrphans(world.lake(grace_ms=0), world.tables)
        for _ in range(3):
            assert not (await orphans.collect()).failures
        stored = {path.name for path in (tmp_path / "bucket").rglob("*.parquet") if parse_derived(path.name)}
        assert stored == {name for name in named if parse_derived(name)}
        assert await world.latest() == {b"a": b"7", b"b": b"1"}


def _until_stored() -> Fuse:
    """Crashes right after the first file was stored."""

    class _Stored(Fuse):
        async def step(self, name: str) -> None:
            if name == "after objects.put":
                raise Crash(name)

    return _Stored()


async def test_a_worn_file_is_written_anew_and_a_bucket_has_one_file_of_deletes(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(partitions=1, lakestream__table__upsert="_key")
        await world.put(topic, 0, *((b"k%04d" % key, b"0") for key in range(3200)))
        await world.settle()
        for number in range(1, 13):
            await world.put(topic, 0, *((b"k%04d" % key, b"%d" % number) for key in range(number, 3200, 97)))
            await world.settle()
            found = await world.view()
            assert found is not None
            deletes = [parse_derived(delete.path) for delete in found.view.deletes]
            assert len({name.bucket for name in deletes if name}) == len(deletes)
            rows = sum(file.record_count for file in found.view.files)
            assert rows <= 3200 / 0.8 + 1
        want = {b"k%04d" % key: b"0" for key in range(3200)}
        for number in range(1, 13):
            want |= {b"k%04d" % key: b"%d" % number for key in range(number, 3200, 97)}
        assert await world.latest() == want


async def test_a_table_that_is_ahead_of_its_stream_is_made_anew(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await filled(world)
        found = await world.view()
        assert found is not None
        await world.tables.commit(found, add=(), remove=frozenset(), frontier=(99, 0))
        [(_, error)] = (await world.deriver().run()).failures
        assert "is ahead of its stream's table" in str(error)
        await world.put(topic, 0, (b"c", b"1"))
        await world.settle()
        assert await world.latest() == {b"a": b"1", b"b": b"1", b"c": b"1"}


async def test_a_moved_bucket_has_its_derived_tables(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    async with derived_world(old) as world:
        topic = await world.topic(partitions=1, lakestream__table__upsert="_key")
        await world.put(topic, 0, *((b"k%03d" % key, b"0") for key in range(800)))
        await world.settle()
        await world.put(topic, 0, *((b"k%03d" % key, b"1") for key in range(0, 800, 40)))
        await world.settle()
        before = await world.view()
        assert before is not None
        assert before.view.deletes
        shutil.copytree(old, new)
        addresses = Addresses(f"file://{old}/bucket", f"file://{new}/bucket")
        bucket = objects.open(f"file://{new}/bucket")
        store = world.house.cluster.store
        pointers = Pointers(store)
        async for table_id, row in pointers.every():
            location = await Rehoming(bucket, addresses).table(row.pointer.metadata_location)
            await pointers.swing(table_id, row.version, Pointer(location, row.pointer.bound))
        shutil.rmtree(old)
        catalog = PyIcebergTables(store, bucket.url, world.house.cluster.runtime)
        world.house.catalog, world.house.cluster.objects = catalog, bucket
        assert len(await world.latest()) == 800
        changed = [changed async for changed in _rewritten(world, topic)]
        assert changed == [800, 799]
        await catalog.close()


async def _rewritten(world: DerivedWorld, topic: Topic) -> AsyncIterator[int]:
    """Rows, when the stream's rows below were seen again by a new recipe, and when it was changed at its new place."""
    yield len(await world.latest())
    found = await world.view()
    assert found is not None
    schema = arrow_schema(found.shape.columns)
    gone = pa.table({"_key": pa.array([b"k001"], pa.binary())}, schema=pa.schema([schema.field("_key")]))
    changes = RowChanges(schema.empty_table(), gone, pa.array([], pa.binary()))
    lake = world.lake()
    changed = await StateFiles(lake.objects, max_bytes=1 << 20).apply(found.view, found.shape, changes)
    await commit_changed(lake, world.tables, found, changed, found.view.frontier)
    yield len(await world.latest())


async def test_a_derived_table_has_the_rights_of_its_topic(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        await filled(world)
        pointers, topics = Pointers(world.house.cluster.store), world.topics()
        await TableRights(pointers, topics, OnlyTopics("orders")).check(ANONYMOUS, Operation.READ, LATEST)
        with pytest.raises(NotAuthorized):
            await TableRights(pointers, topics, OnlyTopics("default.orders__latest")).check(
                ANONYMOUS, Operation.READ, LATEST
            )
