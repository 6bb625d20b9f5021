"""Names, namespaces and pointers on the store, when things go wrong in between."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import pytest
from support.tables.files import ORDERS, OTHER

from lakestream.errors import (
    Conflict,
    NamespaceExists,
    NamespaceNotEmpty,
    RequestError,
    TableExists,
    Unavailable,
    UnknownNamespace,
    UnknownTable,
)
from lakestream.metadata import codec
from lakestream.metadata.names.pointers import Pointer, PointerRow, Pointers, TableName
from lakestream.metadata.store import Address, Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system

DEFAULT = ("default",)


class FailingStore(MemoryStore):
    """Does not answer for shards that start with `failing`, whether or not it applied the change."""

    failing = "nothing"
    applies = False

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        hit = any(transaction.shard.startswith(self.failing) for transaction in transactions)
        if hit and not self.applies:
            raise Unavailable("no answer")
        outcomes = await super().transact(transactions)
        if hit:
            raise Unavailable("no answer")
        return outcomes


async def run(test: Callable[[FailingStore, Pointers], Awaitable[None]]) -> None:
    store = FailingStore(system())
    await test(store, Pointers(store))


def name(text: str) -> TableName:
    return TableName(DEFAULT, text)


async def make(pointers: Pointers, table_id: UUID, text: str) -> PointerRow:
    row = await pointers.add(table_id, Pointer(f"file:///{text}"))
    await pointers.bind(table_id, name(text), make_namespace=True)
    return row


async def test_a_pointer_swings_once_per_version() -> None:
    async def test(_store: FailingStore, pointers: Pointers) -> None:
        first = await pointers.add(ORDERS, Pointer("a"))
        assert await pointers.add(ORDERS, Pointer("b")) == first
        second = await pointers.swing(ORDERS, first.version, Pointer("b"))
        with pytest.raises(Conflict):
            await pointers.swing(ORDERS, first.version, Pointer("c"))
        assert await pointers.get(ORDERS) == second
        with pytest.raises(Conflict):
            await pointers.swing(OTHER, first.version, Pointer("c"))
        assert await pointers.get(OTHER) is None

    await run(test)


async def test_a_pointer_back_at_its_old_value_is_not_the_old_pointer() -> None:
    async def test(_store: FailingStore, pointers: Pointers) -> None:
        first = await pointers.add(ORDERS, Pointer("a"))
        second = await pointers.swing(ORDERS, first.version, Pointer("b"))
        await pointers.swing(ORDERS, second.version, Pointer("a"))
        with pytest.raises(Conflict):
            await pointers.swing(ORDERS, first.version, Pointer("late"))

    await run(test)


async def test_binding_is_idempotent_and_a_name_is_one_tables() -> None:
    async def test(_store: FailingStore, pointers: Pointers) -> None:
        with pytest.raises(UnknownNamespace):
            await pointers.bind(ORDERS, name("t"))
        await make(pointers, ORDERS, "t")
        assert await pointers.bind(ORDERS, name("t")) == name("t")
        assert await pointers.bind(ORDERS, name("other")) == name("t")
        with pytest.raises(TableExists):
            await pointers.bind(OTHER, name("t"))
        assert await pointers.resolve(name("t")) == ORDERS
        assert await pointers.tables(DEFAULT) == ["t"]

    await run(test)


async def test_names_are_listed_by_namespace_only() -> None:
    async def test(_store: FailingStore, pointers: Pointers) -> None:
        await make(pointers, ORDERS, "a")
        await pointers.create_namespace(("default", "deep"), {})
        await pointers.create_namespace(("default2",), {})
        await pointers.bind(OTHER, TableName(("default", "deep"), "b"))
        assert await pointers.tables(DEFAULT) == ["a"]
        assert await pointers.tables(("default", "deep")) == ["b"]
        assert await pointers.namespaces() == [("default",), ("default2",)]
        assert await pointers.namespaces(DEFAULT) == [("default", "deep")]
        with pytest.raises(NamespaceExists):
            await pointers.create_namespace(DEFAULT, {})
        with pytest.raises(UnknownNamespace):
            await pointers.tables(("none",))
        for bad in ((), ("",), ("a\x1fb",)):
            with pytest.raises(RequestError):
                await pointers.create_namespace(bad, {})

    await run(test)


async def test_renaming_moves_the_name_and_nothing_else() -> None:
    async def test(_store: FailingStore, pointers: Pointers) -> None:
        await make(pointers, ORDERS, "a")
        await make(pointers, OTHER, "b")
        row = await pointers.get(ORDERS)
        with pytest.raises(TableExists):
            await pointers.rename(ORDERS, name("b"))
        with pytest.raises(UnknownNamespace):
            await pointers.rename(ORDERS, TableName(("none",), "c"))
        await pointers.rename(ORDERS, name("c"))
        await pointers.rename(ORDERS, name("c"))
        assert await pointers.tables(DEFAULT) == ["b", "c"]
        assert (await pointers.name_of(ORDERS), await pointers.get(ORDERS)) == (name("c"), row)

    await run(test)


@pytest.mark.parametrize("applies", [False, True])
async def test_a_drop_that_was_cut_off_is_finished_by_the_next_one(applies: bool) -> None:
    async def test(store: FailingStore, pointers: Pointers) -> None:
        await make(pointers, ORDERS, "a")
        await make(pointers, OTHER, "b")
        store.failing, store.applies = "table/", applies
        with pytest.raises(Unavailable):
            await pointers.drop(ORDERS)
        store.failing = "nothing"
        await pointers.drop(OTHER)
        with pytest.raises(UnknownTable):
            await pointers.resolve(name("a"))
        assert await pointers.get(ORDERS) is None
        assert await pointers.get(OTHER) is None
        await pointers.drop_namespace(DEFAULT)
        assert await store.range("tables", "", "~") == []

    await run(test)


async def test_a_drop_does_not_take_a_table_that_a_topic_took_over_meanwhile() -> None:
    async def test(store: FailingStore, pointers: Pointers) -> None:
        row = await make(pointers, ORDERS, "a")
        await pointers.swing(ORDERS, row.version, Pointer("adopted", bound=True))
        with pytest.raises(Conflict):
            await pointers.drop(ORDERS, row.version)
        assert await pointers.resolve(name("a")) == ORDERS
        adopted = await pointers.get(ORDERS)
        assert adopted is not None
        assert adopted.pointer == Pointer("adopted", bound=True)

    await run(test)


async def test_a_drop_that_was_announced_loses_to_the_topic_whoever_finishes_it() -> None:
    async def test(store: FailingStore, pointers: Pointers) -> None:
        row = await make(pointers, ORDERS, "a")
        plain = store.range

        async def overtaken(shard: str, start: str, end: str, *, limit: int | None = None) -> list[object]:
            store.range = plain  # type: ignore[method-assign]
            await pointers.swing(ORDERS, row.version, Pointer("adopted", bound=True))
            return await plain(shard, start, end, limit=limit)

        store.range = overtaken  # type: ignore[assignment, method-assign]
        with pytest.raises(Conflict):
            await pointers.drop(ORDERS, row.version)
        await pointers.finish_drops()
        assert await pointers.resolve(name("a")) == ORDERS
        assert await pointers.get(ORDERS) is not None
        assert await plain("tables", "gone/", "gone0") == []

    await run(test)


async def test_a_drop_that_the_version_before_began_is_finished() -> None:
    async def test(store: FailingStore, pointers: Pointers) -> None:
        await pointers.add(ORDERS, Pointer("left"))
        key = f"gone/{ORDERS.hex}"
        value = codec.encode(None, Address("tables", key))
        await store.transact([Transaction("tables", {}, {key: value})])
        await pointers.finish_drops()
        assert await pointers.get(ORDERS) is None
        assert await store.range("tables", "", "~") == []

    await run(test)


async def test_a_namespace_is_not_dropped_under_a_table_that_arrives() -> None:
    async def test(store: FailingStore, pointers: Pointers) -> None:
        await pointers.create_namespace(DEFAULT, {"a": "1"})
        plain = store.range

        async def overtaken(shard: str, start: str, end: str, *, limit: int | None = None) -> list[object]:
            found = await plain(shard, start, end, limit=limit)
            store.range = plain  # type: ignore[method-assign]
            await make(pointers, ORDERS, "late")
            return found

        store.range = overtaken  # type: ignore[assignment, method-assign]
        with pytest.raises(NamespaceNotEmpty):
            await pointers.drop_namespace(DEFAULT)
        assert await pointers.namespace(DEFAULT) == {"a": "1"}
        assert await pointers.tables(DEFAULT) == ["late"]

    await run(test)
