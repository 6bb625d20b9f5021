"""What a broker knows of tables before it has loaded what reads them."""

from typing import Any

import pytest
from support.tables.files import ORDERS

from lakestream.catalog.embedded.early import EarlyViews
from lakestream.metadata.names.pointers import Pointer, Pointers, TableName
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system

NAME = TableName(("default",), "orders")


class _NotLoaded:
    def __getattr__(self, method: str) -> Any:
        raise AssertionError(f"{method} has to wait")


async def _early(*, bound: bool) -> EarlyViews:
    pointers = Pointers(MemoryStore(system()))
    await pointers.add(ORDERS, Pointer("there", bound=bound))
    await pointers.bind(ORDERS, NAME, make_namespace=True)
    return EarlyViews(pointers, _NotLoaded())  # type: ignore[arg-type]


async def test_pointers_and_names_are_told_at_once() -> None:
    early = await _early(bound=True)
    assert await early.pointer(ORDERS) == "there"
    assert await early.adoptable(TableName(("default",), "other"), 1) is None
    detached = await early.detach(ORDERS)
    assert detached == f"default.orders__{ORDERS.hex[:8]}"
    assert await early.pointer(ORDERS) is None


async def test_what_is_in_a_table_has_to_wait() -> None:
    early = await _early(bound=False)
    for asked in (early.load(ORDERS), early.adoptable(NAME, 1)):
        with pytest.raises(AssertionError, match="has to wait"):
            await asked
