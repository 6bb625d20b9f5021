"""Topics that go on in tables that are in an external catalog already, where nothing but marks and snapshots keeps
another cluster from writing them too."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.types import BinaryType, LongType, NestedField
from support.servers.catalogs import EXTERNAL, QUICK, external_place, sql_place
from support.servers.s3 import environment
from support.tables.files import write_file
from support.worlds.lake import LakeWorld
from support.worlds.takeover import ALIAS, KINDS, NAME, OLD_ROWS, Run, Scene, failure, former, on

from lakestream.errors import Conflict, InvalidSetting, StorageError, StreamExists
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Topic
from lakestream.table.schema import CLUSTER_PROPERTY, iceberg_schema
from lakestream.table.shape import RAW

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")


@pytest.fixture(params=[pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in EXTERNAL])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    if request.param == "nessie":
        for name, value in environment(request.getfixturevalue("aws_address")).items():
            monkeypatch.setenv(name, value)
    with external_place(request.param, request, tmp_path) as place:
        yield lambda test: on(place, test)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda test: on(sql_place(tmp_path), test)


FEW = Schema(NestedField(1, "_value", BinaryType()), NestedField(2, "_offset", LongType(), required=True))


@pytest.mark.parametrize("columns", [iceberg_schema(RAW), FEW], ids=["all", "few"])
async def test_a_topic_fills_the_table_that_an_engine_made_for_it(
    everywhere: Run, columns: Schema, request: pytest.FixtureRequest
) -> None:
    async def test(scene: Scene) -> None:
        made = scene.engine_table(columns, properties={"owner": "ann"})
        if "nessie-few" in request.node.name:
            # Nessie 0.99 asks for a field with new columns that PyIceberg does not send.
            house = await scene.cluster()
            with pytest.raises(InvalidSetting, match="make it with all columns of a stream's table, in their order"):
                await house.streams.create_topic("orders", 2, ALIAS)
            assert scene.table().metadata_location == made.metadata_location
            return
        house = await scene.cluster()
        topic = await house.streams.create_topic("orders", 2, ALIAS)
        assert topic.topic_id == made.metadata.table_uuid
        assert await house.produce(topic, 1, b"a", b"b") == 0
        assert not (await house.tick()).failures
        table = scene.table()
        assert (table.metadata.table_uuid, table.location()) == (made.metadata.table_uuid, made.location())
        assert sorted(table.schema().fields, key=lambda field: field.field_id) == list(iceberg_schema(RAW).fields)
        names = [field.name for field in table.schema().fields]
        assert names[: len(columns.fields)] == [field.name for field in columns.fields]
        assert table.properties["owner"] == "ann"
        assert table.properties["write.delete.mode"] == "copy-on-write"
        assert scene.rows() == [(1, 0, b"a"), (1, 1, b"b")]
        assert await house.consume(topic, 1) == [(0, b"a"), (1, b"b")]
        await house.produce(topic, 0, b"c")
        assert (await house.tick()).record_count == 1
        assert scene.rows() == [(0, 0, b"c"), (1, 0, b"a"), (1, 1, b"b")]

    await everywhere(test)


async def test_the_former_owner_stops_and_neither_loses_a_record(everywhere: Run) -> None:
    async def test(scene: Scene) -> None:
        old, topic = await former(scene)
        new = await scene.cluster()
        cluster = old.streams.cluster_id
        before = scene.table().metadata_location
        with pytest.raises(InvalidSetting, match=f"it is the table of cluster {cluster}, which would have to stop"):
            await new.streams.create_topic("orders", 2, ALIAS)
        assert scene.table().metadata_location == before
        await old.produce(topic, 0, b"tail 2")
        planned = await old.catalog.load(topic.topic_id)
        scene.let_go()
        again = await new.streams.create_topic("orders", 2, ALIAS)
        assert again.topic_id == topic.topic_id

        # What the former owner had planned is refused, and then it knows why.
        with pytest.raises((Conflict, StorageError)):
            await old.catalog.commit(planned, add=[], remove=[], frontier=(3, 1))
        await old.produce(topic, 0, b"tail 3")
        assert f"cluster {new.streams.cluster_id} has taken it over and goes on in it" in await failure(old)

        assert await new.consume(again, 0) == [(0, b"a"), (1, b"b")], "before any pipeline ran"
        assert await new.produce(again, 0, b"d") == 2
        assert (await new.tick()).record_count == 1
        assert scene.rows() == sorted([*OLD_ROWS, (0, 2, b"d")])
        await failure(old)
        for house in (old, new):
            await house.collect()
        assert await old.consume(topic, 0) == [(0, b"a"), (1, b"b"), (2, b"tail 2"), (3, b"tail 3")]
        assert await old.consume(topic, 1) == [(0, b"c")]
        assert await new.consume(again, 0) == [(0, b"a"), (1, b"b"), (2, b"d")]
        assert await new.consume(again, 1) == [(0, b"c")]

        restarted = await old.catalog.broker_views().load(topic.topic_id)
        assert restarted.frontier == (2, 1), "a broker that starts now serves what was there before, too"

        # The former owner deletes its topic: the table is not its to rename.
        await old.streams.delete_topic(topic.topic_id)
        await new.produce(again, 1, b"e")
        assert (await new.tick()).record_count == 1
        assert scene.rows() == sorted([*OLD_ROWS, (0, 2, b"d"), (1, 1, b"e")])

    await everywhere(test)


@KINDS
async def test_of_two_clusters_that_want_a_table_one_gets_it(everywhere: Run, kind: str) -> None:
    """Both have found it free. A catalog that lets any first commit through must not let the second take it again."""

    async def test(scene: Scene) -> None:
        if kind == "made by an engine":
            scene.engine_table()
        else:
            await former(scene)
            scene.let_go()
        clusters = [await scene.cluster() for _ in range(2)]
        found = [await house.catalog.find(NAME) for house in clusters]
        late, winner = clusters
        topic = await winner.streams.create_topic("orders", 2, ALIAS)
        await winner.produce(topic, 0, b"kept")
        assert (await winner.tick()).record_count == 1
        rows = scene.rows()
        assert rows[-1 if kind == "made by an engine" else 2][2] == b"kept"
        assert found[0] is not None
        first = late.catalog._first(found[0], "late", (0, 0))
        with pytest.raises(Conflict):
            await late.catalog.mark(NAME, found[0], first)
        with pytest.raises(InvalidSetting, match=f"table of cluster {winner.streams.cluster_id}"):
            await late.streams.create_topic("orders", 2, ALIAS)
        assert await late.streams.topics.list() == []
        assert scene.rows() == rows
        await winner.produce(topic, 0, b"more")
        assert (await winner.tick()).record_count == 1

    await everywhere(test)


async def test_clusters_that_claim_at_the_same_moment(everywhere: Run) -> None:
    async def test(scene: Scene) -> None:
        scene.engine_table()
        clusters = [await scene.cluster() for _ in range(3)]
        made = await asyncio.gather(
            *(house.streams.create_topic("orders", 1, ALIAS) for house in clusters), return_exceptions=True
        )
        winners = [(house, each) for house, each in zip(clusters, made, strict=True) if isinstance(each, Topic)]
        losers = [each for each in made if isinstance(each, BaseException)]
        assert all(isinstance(each, InvalidSetting) for each in losers), losers
        [(winner, topic)] = winners
        assert scene.table().properties[CLUSTER_PROPERTY] == winner.streams.cluster_id
        await winner.produce(topic, 0, b"a")
        assert (await winner.tick()).record_count == 1
        assert scene.rows() == [(0, 0, b"a")]

    await everywhere(test)


async def test_a_table_changes_hands_under_load(everywhere: Run) -> None:
    """The owner produces and commits all the while, whatever its ticks say; so does the new one."""

    async def test(scene: Scene) -> None:
        old, new = await scene.cluster(), await scene.cluster()
        topic = await old.streams.create_topic("orders", 1, ALIAS)
        begun, over = asyncio.Event(), asyncio.Event()

        async def go_on(house: LakeWorld, name: bytes, enough: int) -> int:
            count = 0
            while not over.is_set():
                await house.produce(topic, 0, b"%s %d" % (name, count))
                await house.tick()
                count += 1
                if count == enough:
                    begun.set()
            return count

        owner = asyncio.create_task(go_on(old, b"old", 3))
        await begun.wait()
        scene.let_go()
        assert (await new.streams.create_topic("orders", 1, ALIAS)).topic_id == topic.topic_id
        begun.clear()
        heir = asyncio.create_task(go_on(new, b"new", 6))
        await begun.wait()
        over.set()
        produced, inherited = await owner, await heir
        assert await old.consume(topic, 0) == [(offset, b"old %d" % offset) for offset in range(produced)]
        everything = await new.consume(topic, 0)
        start = len(everything) - inherited
        assert 3 <= start < produced, "the owner was stopped"
        values = [b"old %d" % offset for offset in range(start)] + [b"new %d" % number for number in range(inherited)]
        assert everything == list(enumerate(values))
        assert [row[1:] for row in scene.rows()] == everything
        assert "has taken it over" in await failure(old)

    await everywhere(test)


async def test_what_the_owner_commits_at_the_last_moment_is_gone_on_from(run: Run) -> None:
    """It had loaded the table before it was let go, and commits after it was looked at."""

    async def test(scene: Scene) -> None:
        old, topic = await former(scene)
        new = await scene.cluster()
        view, current = await old.catalog.load(topic.topic_id), await old.catalog.commits.load(topic.topic_id)
        scene.let_go()
        adoptable = new.catalog.adoptable

        async def slow(table: TableName, partitions: int) -> Any:
            found = await adoptable(table, partitions)
            file = write_file(Path(scene.table().metadata.location.removeprefix("file://")) / "data", 2, 5)

            async def loaded(_: UUID) -> Any:
                return current

            old.catalog.commits.load = loaded  # type: ignore[method-assign]
            assert (await old.catalog.commit(view, add=[file], remove=[], frontier=(5, 1))).frontier == (5, 1)
            return found

        new.catalog.adoptable = slow  # type: ignore[method-assign]
        again = await new.streams.create_topic("orders", 2, ALIAS)
        assert await new.produce(again, 0, b"d") == 5
        assert (await new.tick()).record_count == 1
        assert [row[:2] for row in scene.rows()] == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 0)]

    await run(test)


async def test_a_mark_that_is_set_back_by_hand_makes_nobodys_records_anothers(run: Run) -> None:
    """Both gave out offset 2. Whoever has the mark must not take the other's record for its own, and forget its WAL."""

    async def test(scene: Scene) -> None:
        old, topic = await former(scene)
        new = await scene.cluster()
        scene.let_go()
        again = await new.streams.create_topic("orders", 2, ALIAS)
        await new.produce(again, 0, b"theirs")
        await new.tick()
        await old.produce(topic, 0, b"ours")
        with scene.table().transaction() as change:
            change.set_properties({CLUSTER_PROPERTY: old.streams.cluster_id})
        assert "has offset 2, which the log has not given to the table yet" in await failure(old)
        await old.collect()
        assert await old.consume(topic, 0) == [(0, b"a"), (1, b"b"), (2, b"ours")]
        await new.produce(again, 0, b"more")
        assert f"cluster {old.streams.cluster_id} has taken it over" in await failure(new)
        with scene.table().transaction() as change:
            change.set_properties({CLUSTER_PROPERTY: new.streams.cluster_id})
        assert (await new.tick()).record_count == 1
        assert scene.rows() == sorted([*OLD_ROWS, (0, 2, b"theirs"), (0, 3, b"more")])

    await run(test)


async def test_a_mark_that_was_removed_stops_its_owner_until_it_is_back(run: Run) -> None:
    async def test(scene: Scene) -> None:
        house, topic = await former(scene)
        scene.let_go()
        await house.produce(topic, 0, b"d")
        sentence = await failure(house)
        assert f"property {CLUSTER_PROPERTY} was removed" in sentence
        assert house.streams.cluster_id in sentence
        with scene.table().transaction() as change:
            change.set_properties({CLUSTER_PROPERTY: house.streams.cluster_id})
        assert (await house.tick()).record_count == 1
        assert scene.rows() == sorted([*OLD_ROWS, (0, 2, b"d")])

    await run(test)


async def test_what_a_topic_cannot_be_stops_nobody(run: Run) -> None:
    """A topic of that name is there, or as many partitions cannot be: found before the table is claimed."""

    async def test(scene: Scene) -> None:
        old, topic = await former(scene)
        new = await scene.cluster()
        await new.streams.create_topic("orders", 1, {})
        scene.let_go()
        before = scene.table().metadata_location
        with pytest.raises(StreamExists):
            await new.streams.create_topic("orders", 2, ALIAS)
        with pytest.raises(InvalidSetting, match="its stream has 2 partitions: create the topic with as many"):
            await new.streams.create_topic("more", 3, ALIAS)
        await old.streams.delete_topic(topic.topic_id)
        with pytest.raises(InvalidSetting, match="is or was the table of another topic of this cluster"):
            await old.streams.create_topic("orders", 2, ALIAS)
        assert scene.table().metadata_location == before

    await run(test)


async def test_a_deleted_topic_leaves_its_table_and_its_name_is_free(run: Run) -> None:
    async def test(scene: Scene) -> None:
        scene.engine_table()
        house = await scene.cluster()
        topic = await house.streams.create_topic("orders", 1, ALIAS)
        await house.produce(topic, 0, b"a")
        await house.tick()
        await house.streams.delete_topic(topic.topic_id)
        kept = ("sales", f"orders__{topic.topic_id.hex[:8]}")
        assert scene.outsider.load_table(kept).scan().to_arrow().num_rows == 1
        again = await house.streams.create_topic("orders", 1, ALIAS)
        assert again.topic_id != topic.topic_id
        await house.produce(again, 0, b"b")
        assert (await house.tick()).record_count == 1
        assert scene.rows() == [(0, 0, b"b")]

        # Another cluster may go on in what was left, once that is wanted.
        other = await scene.cluster()
        alias = {"lakestream.table.name": ".".join(kept)}
        with pytest.raises(InvalidSetting, match=f"remove the table's property {CLUSTER_PROPERTY}"):
            await other.streams.create_topic("orders", 1, alias)
        with scene.outsider.load_table(kept).transaction() as change:
            change.remove_properties(CLUSTER_PROPERTY)
        third = await other.streams.create_topic("orders", 1, alias)
        assert await other.produce(third, 0, b"c") == 1
        assert (await other.tick()).record_count == 1
        assert await other.consume(third, 0) == [(0, b"a"), (1, b"c")]

    await run(test)


async def test_a_table_of_an_engine_that_is_moved_stops_commits(run: Run) -> None:
    async def test(scene: Scene) -> None:
        scene.engine_table()
        house = await scene.cluster()
        topic = await house.streams.create_topic("orders", 1, ALIAS)
        await house.produce(topic, 0, b"a")
        moved = f"{scene.place.bucket_url}/tables/orders__{topic.topic_id.hex[:8]}"
        scene.outsider.commit_table(scene.table(), (), (SetLocationUpdate(location=moved),))
        assert f"its location was moved to {moved}" in await failure(house)

    await run(test)
