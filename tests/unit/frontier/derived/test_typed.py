"""Tables that are derived from typed ones: key columns of the value, change events, dead letters."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from support.schemas.avro import framed, written
from support.schemas.debezium import ENVELOPE, event
from support.tables.shapes import ITEMS
from support.worlds.derived import DerivedWorld, derived_world

from lakestream.errors import StorageError
from lakestream.frontier.upkeep.rewrite import put_in_place
from lakestream.metadata.topics.list import Topic
from lakestream.schemas.codecs import install
from lakestream.schemas.shapes import with_schema
from lakestream.table.parquet.arrow import canonical
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.rewriting.rewriter import Rewritten
from lakestream.table.shape import TableShape, ValueSchema

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "number", "type": "int"},
        {"name": "total", "type": ["null", "double"], "default": None},
        {"name": "version", "type": ["null", "long"], "default": None},
    ],
}
SCHEMA_ID = 7


def shape_of(schema: object) -> TableShape:
    install()
    return with_schema(TableShape(codec="avro-schema-id-1"), ValueSchema(SCHEMA_ID, json.dumps(schema)))


def order(customer: str, number: int, total: float | None = None, version: int | None = None) -> bytes:
    value = {"customer": customer, "number": number, "total": total, "version": version}
    return framed(SCHEMA_ID, written(ORDER, value))


async def typed(world: DerivedWorld, schema: object, partitions: int = 1, **configs: str) -> Topic:
    topic = await world.topic(partitions=partitions, lakestream__value__format="schema_id", **configs)
    await world.house.catalog.create(topic.topic_id, topic.name, partitions, shape=shape_of(schema))
    return topic


async def totals(world: DerivedWorld) -> dict[tuple[str, int], float | None]:
    rows = await world.rows()
    found = {(row["customer"], row["number"]): row["total"] for row in rows}
    assert len(found) == len(rows), "a key stands twice"
    return found


async def test_columns_of_the_value_name_a_row(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await typed(world, ORDER, lakestream__table__upsert="customer,number")
        await world.put(
            topic,
            0,
            (b"a", order("ann", 1, 1.5)),
            (b"a", order("ann", 2, 2.5)),
            (b"b", order("bob", 1, 3.5)),
            (b"x", b"no such bytes"),
        )
        await world.settle()
        assert await totals(world) == {("ann", 1): 1.5, ("ann", 2): 2.5, ("bob", 1): 3.5}
        await world.put(topic, 0, (b"a", order("ann", 2, 4.5)), (b"b", None), (b"b", order("bob", 2)), (None, None))
        await world.settle()
        assert await totals(world) == {("ann", 1): 1.5, ("ann", 2): 4.5, ("bob", 2): None}
        await world.put(topic, 0, (b"b", order("bob", 3, 1.0)), (b"a", None))
        await world.settle()
        assert await totals(world) == {("bob", 2): None, ("bob", 3): 1.0}


async def test_an_order_column_says_what_is_newest_over_partitions(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await typed(
            world,
            ORDER,
            partitions=2,
            lakestream__table__upsert="customer,number",
            lakestream__table__order__column="version",
        )
        await world.put(topic, 0, (b"a", order("ann", 1, 1.0, 5)), (b"a", order("ann", 1, 2.0, 4)))
        await world.settle()
        assert await totals(world) == {("ann", 1): 1.0}
        await world.put(topic, 1, (b"a", order("ann", 1, 3.0, 3)), (b"b", order("bob", 1, 1.0, 1)))
        await world.settle()
        assert await totals(world) == {("ann", 1): 1.0, ("bob", 1): 1.0}
        await world.put(topic, 1, (b"a", order("ann", 1, 4.0, 6)), (b"b", order("bob", 1, 2.0, 1)))
        await world.settle()
        assert await totals(world) == {("ann", 1): 4.0, ("bob", 1): 2.0}


async def test_change_events_are_rows(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await typed(world, ENVELOPE, lakestream__table__upsert="id", lakestream__value__transform="debezium")

        def row(number: int, name: str) -> dict[str, object]:
            return {"id": number, "name": name, "version": None}

        def change(op: str, before: dict[str, object] | None, after: dict[str, object] | None) -> tuple[bytes, bytes]:
            number = (after or before or {"id": 0})["id"]
            return b"%d" % number, event(SCHEMA_ID, op, before, after)  # type: ignore[str-bytes-safe,operator]

        await world.put(
            topic,
            0,
            change("r", None, row(1, "one")),
            change("c", None, row(2, "two")),
            change("c", None, row(3, "three")),
            change("c", None, row(4, "four")),
            change("u", row(2, "two"), row(2, "zwei")),
            change("t", None, None),
            (b"y", b"no envelope"),
        )
        await world.settle()
        assert {each["id"]: each["name"] for each in await world.rows()} == {
            1: "one", 2: "zwei", 3: "three", 4: "four"
        }  # fmt: skip
        await world.put(topic, 0, change("d", row(1, "one"), None), (b"1", None), change("d", None, None), (b"4", None))
        await world.settle()
        rows = await world.rows()
        assert {each["id"]: each["name"] for each in rows} == {2: "zwei", 3: "three"}
        assert {"id", "name", "version", "_key", "_offset", "_stream_partition", "_timestamp"} == {*rows[0]}
        view = await world.house.catalog.load(topic.topic_id)
        assert sum(file.record_count for file in view.files) == 11


async def test_change_events_by_record_key(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await typed(world, ENVELOPE, lakestream__value__transform="debezium")
        one, two = ({"id": number, "name": "n", "version": None} for number in (1, 2))
        await world.put(
            topic,
            0,
            (b"1", event(SCHEMA_ID, "c", None, one)),
            (b"2", event(SCHEMA_ID, "c", None, two)),
            (b"1", event(SCHEMA_ID, "d", one, None)),
        )
        await world.settle()
        assert [row["id"] for row in await world.rows()] == [2]


async def test_change_events_in_a_raw_topic_are_told_to_be_none(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(partitions=1, lakestream__value__transform="debezium")
        await world.put(topic, 0, (b"1", b"{}"))
        await world.house.tick()
        [(_, error)] = (await world.deriver().run()).failures
        assert isinstance(error, StorageError)
        assert "no record in the field after, as change events of Debezium have" in str(error)


async def test_dead_letters_have_a_table_when_there_is_one(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(lakestream__value__format="schema_id")
        await world.house.catalog.create(topic.topic_id, topic.name, 2, shape=ITEMS)
        await world.put(topic, 0, (b"a", b"1:tea"), (b"a", None))
        await world.settle()
        assert await world.view("dlq") is None
        await world.put(topic, 0, (b"a", b"2:tea"), (b"b", b"rubbish"))
        await world.put(topic, 1, (None, b"more"), (b"a", b"3:tea"))
        await world.settle()
        rows = sorted(await world.rows("dlq"), key=lambda row: row["_stream_partition"])
        assert [(row["_stream_partition"], row["_offset"], row["_key"], row["_value"]) for row in rows] == [
            (0, 3, b"b", b"rubbish"),
            (1, 0, None, b"more"),
        ]
        assert rows[0]["_reason"] == "b'rubbish' is not <amount>:<item>"
        assert rows[0]["_detected_at"] is not None
        view = await world.view("dlq")
        assert view is not None
        assert view.view.table == "default.orders__dlq"
        await world.configure(topic, lakestream__errors="none")
        assert len((await world.derive()).put_away) == 1


async def test_a_letter_goes_when_its_record_has_columns(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(partitions=1, lakestream__value__format="schema_id")
        await world.house.catalog.create(topic.topic_id, topic.name, 1, shape=ITEMS)
        await world.put(topic, 0, (b"a", b"1:tea"), (b"b", b"rubbish"), (b"c", b"litter"))
        await world.settle()
        worker = world.deriver()
        await worker.run()
        await world.put(topic, 0, (b"a", b"4:tea"))
        await world.house.tick()
        await worker.run()
        assert len(await world.rows("dlq")) == 2
        await answer(world, topic, offset=1)
        assert not (await worker.run()).failures
        assert [row["_offset"] for row in await world.rows("dlq")] == [2]
        await answer(world, topic, offset=2)
        await world.derive()
        assert await world.rows("dlq") == []


async def answer(world: DerivedWorld, topic: Topic, offset: int) -> None:
    """Fills the columns of a row, as a replay of dead letters does."""
    view = await world.house.catalog.load(topic.topic_id)
    for file in view.files:
        assert file.offset_min is not None
        assert file.offset_max is not None
        if not file.offset_min <= offset <= file.offset_max:
            continue
        rows = pq.read_table(file.path.removeprefix("file://"))
        kinds = [
            3 if place == offset else kind
            for place, kind in zip(rows["_offset"].to_pylist(), rows["_kind"].to_pylist(), strict=True)
        ]
        rows = rows.set_column(rows.schema.get_field_index("_kind"), "_kind", pa.array(kinds, pa.int32()))
        sink = io.BytesIO()
        writer = StreamFileWriter(sink, ITEMS)
        writer.write_rows(canonical(rows, ITEMS.names, ITEMS))
        stats = writer.close()
        lake = world.lake()
        await put_in_place(lake, view, [file], [Rewritten(sink.getbuffer(), stats, file.spec_id)])
