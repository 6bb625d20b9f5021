"""Which table a topic is: names that every engine takes, clashes, aliases."""

import re
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables.simulated import SimulatedTables
from support.worlds.memory import MemoryWorld

from lakestream.catalog.binding import check_alias
from lakestream.errors import InvalidSetting
from lakestream.frontier.moving.advance import ensure_table
from lakestream.metadata.names.pointers import Pointer, Pointers
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.metadata.topics.options import topic_options
from lakestream.metadata.topics.tables import MAX_NAME_LENGTH, clashing_name, detached_name, table_name

ID = UUID("1a2b3c4d-0000-4000-8000-000000000000")
ALIAS = "lakestream.table.name"
topic_names = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in (".", ".."))


@pytest.mark.parametrize(
    ("topic", "table"),
    [
        ("orders", "orders"),
        ("Orders", "orders"),
        ("sales.orders", "sales_orders"),
        ("sales-orders.v2", "sales_orders_v2"),
        ("__internal", "__internal"),
        ("2024", "t_2024"),
        ("...", "___"),
        ("select", "select"),
        ("x" * 249, "x" * MAX_NAME_LENGTH),
    ],
)
def test_a_table_has_a_plain_lower_case_name(topic: str, table: str) -> None:
    assert table_name(topic) == TableName(("default",), table)


@given(topic_names, st.uuids())
def test_every_topic_has_a_name_that_is_an_identifier_and_short_enough(topic: str, topic_id: UUID) -> None:
    wanted = table_name(topic)
    for name in (wanted.name, clashing_name(wanted, topic_id).name, detached_name(wanted.name, topic_id)):
        assert re.fullmatch(r"[a-z_][a-z0-9_]*", name)
        assert len(name) <= 255
    assert table_name(topic) == wanted
    assert table_name(wanted.name).name == wanted.name, "a plain name stays as it is"


def test_detaching_does_not_say_the_id_twice() -> None:
    clash = clashing_name(table_name("orders"), ID)
    assert clash.name == "orders_1a2b3c4d"
    assert detached_name(clash.name, ID) == detached_name("orders", ID) == "orders__1a2b3c4d"


@pytest.mark.parametrize(
    ("alias", "table"),
    [("facts", TableName(("default",), "facts")), ("sales.facts_2", TableName(("sales",), "facts_2"))],
)
def test_an_alias_is_a_name_or_a_namespace_and_a_name(alias: str, table: TableName) -> None:
    assert topic_options({ALIAS: alias}).table_name == alias
    assert table_name("whatever", alias) == table


@pytest.mark.parametrize("alias", ["Facts", "a.b.c", "a-b", "1a", ".a", "a.", " a", "a b", 'a"', "é", "a" * 231])
def test_an_alias_that_engines_would_stumble_over_is_refused(alias: str) -> None:
    with pytest.raises(InvalidSetting, match=r"lakestream\.table\.name=.* cannot be: it takes name or namespace\.name"):
        topic_options({ALIAS: alias})


class Bench:
    def __init__(self) -> None:
        self.world = MemoryWorld()
        self.topics = Topics(self.world.store, self.world.runtime)
        self.pointers = Pointers(self.world.store)
        self.tables = SimulatedTables(self.world.store, self.world.tables)

    async def create(self, name: str, **configs: str) -> Topic:
        await check_alias(self.pointers, self.topics, configs)
        topic = await self.topics.create(name, 1, configs)
        self.world.topics[topic.topic_id] = topic
        return topic

    async def table(self, topic: Topic) -> str:
        """Made by the pipeline, whatever else has happened."""
        worker, _ = self.world.pipeline()
        await ensure_table(worker._lake, self.topics, topic)
        return (await self.tables.load(topic.topic_id)).table

    async def foreign(self, name: TableName) -> UUID:
        """A table that an engine made."""
        table_id = self.world.runtime.new_id()
        await self.pointers.add(table_id, Pointer("somewhere", bound=False))
        await self.pointers.bind(table_id, name, make_namespace=True)
        return table_id


async def run(test: Callable[[Bench], Awaitable[None]]) -> None:
    await test(Bench())


@pytest.mark.parametrize("rivals", [("a.b", "a_b"), ("a_b", "a.b"), ("Orders", "orders"), ("a-b", "A.B")])
async def test_of_two_topics_that_ask_for_one_name_the_second_carries_its_id(rivals: tuple[str, str]) -> None:
    async def test(bench: Bench) -> None:
        first, second = [await bench.create(name) for name in rivals]
        wanted = f"default.{table_name(rivals[0]).name}"
        assert await bench.table(first) == wanted
        assert await bench.table(second) == f"{wanted}_{second.topic_id.hex[:8]}"
        for topic, name in ((second, f"{wanted}_{second.topic_id.hex[:8]}"), (first, wanted)):
            assert await bench.table(topic) == name, "a table keeps its name"
        await bench.topics.delete(first.topic_id)
        await bench.tables.detach(first.topic_id)
        assert await bench.table(second) == f"{wanted}_{second.topic_id.hex[:8]}", "also when the other is gone"
        assert await bench.tables.detach(second.topic_id) == f"{wanted}__{second.topic_id.hex[:8]}"

    await run(test)


async def test_a_table_of_an_engine_keeps_its_name_too() -> None:
    async def test(bench: Bench) -> None:
        await bench.foreign(table_name("orders"))
        topic = await bench.create("orders")
        assert await bench.table(topic) == f"default.orders_{topic.topic_id.hex[:8]}"

    await run(test)


async def test_a_topic_made_again_takes_the_name_of_its_predecessor() -> None:
    async def test(bench: Bench) -> None:
        first = await bench.create("sales.orders")
        assert await bench.table(first) == "default.sales_orders"
        await bench.topics.delete(first.topic_id)
        second = await bench.create("sales.orders")
        assert await bench.table(second) == "default.sales_orders"
        assert await bench.pointers.name_of(first.topic_id) == TableName(
            ("default",), f"sales_orders__{first.topic_id.hex[:8]}"
        )

    await run(test)


async def test_an_alias_names_the_table_and_makes_its_namespace() -> None:
    async def test(bench: Bench) -> None:
        topic = await bench.create("Orders.v1", **{ALIAS: "sales.orders"})
        assert await bench.table(topic) == "sales.orders"
        assert await bench.pointers.tables(("sales",)) == ["orders"]
        await bench.topics.delete(topic.topic_id)
        again = await bench.create("Orders.v1", **{ALIAS: "sales.orders"})
        assert await bench.table(again) == "sales.orders", "a dead topic's table gives way"

    await run(test)


async def test_a_table_that_is_there_already_is_looked_for_by_the_alias() -> None:
    async def test(bench: Bench) -> None:
        facts, figures = TableName(("sales",), "facts"), TableName(("sales",), "figures")
        await bench.foreign(facts)
        assert await check_alias(bench.pointers, bench.topics, {ALIAS: "sales.facts"}) == facts
        assert await check_alias(bench.pointers, bench.topics, {ALIAS: "sales.figures"}) == figures
        assert await check_alias(bench.pointers, bench.topics, {}) is None
        dead = await bench.create("dead", **{ALIAS: "sales.figures"})
        await bench.table(dead)
        await bench.topics.delete(dead.topic_id)
        assert await check_alias(bench.pointers, bench.topics, {ALIAS: "sales.figures"}) is None, "it gives way"

    await run(test)


async def test_an_alias_of_another_topics_table_is_refused_when_the_topic_is_made() -> None:
    async def test(bench: Bench) -> None:
        await bench.create("b.c")
        with pytest.raises(InvalidSetting, match=r"it is the table of topic b\.c"):
            await bench.create("d", **{ALIAS: "b_c"})
        await bench.create("e", **{ALIAS: "chosen"})
        with pytest.raises(InvalidSetting, match="it is the table of topic e"):
            await bench.create("f", **{ALIAS: "default.chosen"})
        assert [topic.name for topic in await bench.topics.list()] == ["b.c", "e"]
        clash = await bench.create("chosen")
        assert await bench.table(clash) == "default.chosen", "whose table is made first has the name"

    await run(test)
