"""Any history of typed values whose rows are named by a column, with tombstones of record keys, and of change events:
the table of latest rows is the fold of the log, whatever the steps."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.schemas.avro import framed, written
from support.schemas.debezium import ENVELOPE, ROW, event
from support.worlds.derived import DerivedWorld, derived_world

from lakestream.metadata.topics.list import Topic
from lakestream.schemas.codecs import install
from lakestream.schemas.shapes import with_schema
from lakestream.table.shape import TableShape, ValueSchema

SCHEMA_ID = 7
Pair = tuple[bytes, bytes | None]


async def opened(world: DerivedWorld, schema: object, **configs: str) -> Topic:
    install()
    topic = await world.topic(
        partitions=1, lakestream__value__format="schema_id", lakestream__table__upsert="id", **configs
    )
    shape = with_schema(TableShape(codec="avro-schema-id-1"), ValueSchema(SCHEMA_ID, json.dumps(schema)))
    await world.house.catalog.create(topic.topic_id, topic.name, 1, shape=shape)
    return topic


async def play(world: DerivedWorld, topic: Topic, chance: random.Random, pairs: Iterator[Pair]) -> None:
    waiting = list(pairs)
    while waiting:
        count = chance.randint(1, 12)
        await world.put(topic, 0, *waiting[:count])
        del waiting[:count]
        await world.house.tick()
        for _ in range(chance.randint(0, 2)):
            await world.derive(derive_rows=chance.randint(1, 20), derive_steps=chance.randint(1, 3))
    await world.settle()


@examples(8)
@given(seed=st.integers(0, 1 << 30), count=st.integers(1, 80))
async def test_rows_that_a_column_names(seed: int, count: int) -> None:
    chance = random.Random(seed)
    rows: dict[int, tuple[bytes, str]] = {}

    def records() -> Iterator[Pair]:
        for number in range(count):
            key = b"k%d" % chance.randrange(4)
            roll = chance.random()
            if roll < 0.2:
                for row in [row for row, (record_key, _) in rows.items() if record_key == key]:
                    del rows[row]
                yield key, None
            elif roll < 0.3:
                yield key, b"rubbish"
            else:
                row = chance.randrange(10)
                rows[row] = key, f"v{number}"
                value = {"id": row, "name": f"v{number}", "version": None}
                yield key, framed(SCHEMA_ID, written(ROW, value))

    with TemporaryDirectory() as folder:
        async with derived_world(Path(folder), seed) as world:
            await play(world, await opened(world, ROW), chance, records())
            found = await world.rows()
            assert {row["id"]: (row["_key"], row["name"]) for row in found} == rows
            assert len(found) == len(rows)


@examples(8)
@given(seed=st.integers(0, 1 << 30), count=st.integers(1, 80))
async def test_rows_of_change_events(seed: int, count: int) -> None:
    chance = random.Random(seed)
    rows: dict[int, str] = {}

    def image(row: int, name: str) -> dict[str, Any]:
        return {"id": row, "name": name, "version": None}

    def records() -> Iterator[Pair]:
        for number in range(count):
            row = chance.randrange(8)
            key, had = b"%d" % row, rows.get(row)
            before = None if had is None else image(row, had)
            if had is not None and chance.random() < 0.4:
                del rows[row]
                yield key, event(SCHEMA_ID, "d", before, None)
                if chance.random() < 0.5:
                    yield key, None
                continue
            rows[row] = f"v{number}"
            yield key, event(SCHEMA_ID, "c" if had is None else "u", before, image(row, rows[row]))

    with TemporaryDirectory() as folder:
        async with derived_world(Path(folder), seed) as world:
            topic = await opened(world, ENVELOPE, lakestream__value__transform="debezium")
            await play(world, topic, chance, records())
            found = await world.rows()
            assert {row["id"]: row["name"] for row in found} == rows
            assert len(found) == len(rows)
