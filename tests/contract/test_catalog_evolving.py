"""How the tables of every `TableCatalog` grow with the schemas of their values."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from support.fakes.catalogs import Bench, Open
from support.fakes.catalogs import run as run_on
from support.schemas.door import record
from support.tables.files import ORDERS

from lakestream.errors import Conflict, Unavailable
from lakestream.schemas.growing import BY_ID, grown
from lakestream.table.shape import RAW, TableShape, ValueSchema
from lakestream.table.view import View

NESTED = {"type": "record", "name": "Place", "fields": [{"name": "street", "type": ["null", "string"]}]}
FIRST = record(("id", "int"), "item")
SECOND = record("item", ("id", "long"), ("place", ["null", NESTED]), ("tags", {"type": "array", "items": "string"}))


def run(bench: Open, test: Callable[[Bench], Awaitable[None]]) -> None:
    """A catalog that takes no columns says so, and its table stays as it is."""

    async def refused(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        with pytest.raises(Unavailable):
            await bench.catalog.evolve(view, shape_with(view, schema(1, FIRST)))
        assert (await bench.catalog.load(ORDERS)).shape == RAW

    async def checked(bench: Bench) -> None:
        await (test if bench.takes_columns else refused)(bench)

    run_on(bench, checked)


def schema(schema_id: int, tree: Any) -> ValueSchema:
    return ValueSchema(schema_id, json.dumps(tree))


def shape_with(view: View, *schemas: ValueSchema) -> TableShape:
    return grown(view.shape, schemas, BY_ID, view.last_column_id, view.own_names)


def ids(shape: TableShape) -> dict[str, int]:
    return {path: leaf.field_id for path, leaf in shape.leaves()}


def test_a_table_gets_columns_and_keeps_its_rows(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        view = await bench.catalog.commit(view, add=[bench.file(0, 3)], remove=[], frontier=(3,))
        wanted = shape_with(view, schema(7, FIRST))
        assert (view.shape, wanted.codec) == (RAW, "avro-schema-id-1")
        evolved = await bench.catalog.evolve(view, wanted)
        assert (evolved.shape, evolved.frontier, evolved.files) == (wanted, (3,), view.files)
        assert evolved.intact_from == view.intact_from
        assert evolved.last_column_id == max(ids(wanted).values())
        assert await bench.catalog.load(ORDERS) == evolved
        with pytest.raises(Conflict):
            await bench.catalog.commit(view, add=[bench.file(3, 4)], remove=[], frontier=(4,))
        moved = await bench.catalog.commit(evolved, add=[bench.file(3, 4)], remove=[], frontier=(4,))
        assert moved.shape == wanted

    run(bench, test)


def test_columns_are_added_below_others_and_become_wider(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        view = await bench.catalog.evolve(view, shape_with(view, schema(1, FIRST)))
        before = ids(view.shape)
        view = await bench.catalog.evolve(view, shape_with(view, schema(2, SECOND)))
        after = ids(view.shape)
        assert before.items() <= after.items()
        assert min(after[path] for path in after.keys() - before.keys()) > max(before.values())
        assert {column.name: column.kind for column in view.shape.value_columns} == {
            "id": "long",
            "item": "string",
            "place": "struct",
            "tags": "list",
        }
        assert [each.schema_id for each in view.shape.schemas] == [1, 2]
        assert await bench.catalog.load(ORDERS) == view

    run(bench, test)


def test_of_two_that_evolve_at_once_one_wins(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        # The same columns: nothing but the list of schemas tells the two apart.
        shapes = [shape_with(view, schema(schema_id, FIRST)) for schema_id in (1, 2, 3)]
        outcomes = await asyncio.gather(
            *(bench.catalog.evolve(view, shape) for shape in shapes), return_exceptions=True
        )
        won = [each for each in outcomes if isinstance(each, View)]
        assert len(won) == 1, outcomes
        assert all(isinstance(each, View | Conflict) for each in outcomes)
        assert await bench.catalog.load(ORDERS) == won[0]
        again = shape_with(won[0], schema(9, FIRST))
        assert (await bench.catalog.evolve(won[0], again)).shape == again

    run(bench, test)


def test_what_a_table_has_it_keeps(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        view = await bench.catalog.evolve(view, shape_with(view, schema(1, SECOND)))
        replace = msgspec.structs.replace
        [number] = [place for place, column in enumerate(view.shape.columns) if column.name == "id"]
        columns = view.shape.columns
        narrow = replace(columns[number], kind="int")
        reused = replace(columns[number], name="more", field_id=5)
        for other in (
            RAW,
            replace(view.shape, codec="other-1"),
            replace(view.shape, schemas=()),
            replace(view.shape, schemas=view.shape.schemas * 2),
            replace(view.shape, columns=columns[:number] + columns[number + 1 :]),
            replace(view.shape, columns=(*columns[:number], narrow, *columns[number + 1 :])),
            replace(view.shape, columns=(*columns, reused)),
        ):
            with pytest.raises(ValueError, match=r"column|schema|codec"):
                await bench.catalog.evolve(view, other)
        assert await bench.catalog.load(ORDERS) == view

    run(bench, test)
