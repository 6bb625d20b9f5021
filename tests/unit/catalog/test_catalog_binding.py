"""A table and its topic part, and more than one process sees to it at the same time."""

from uuid import UUID

from support.tables.files import ORDERS

from lakestream.catalog.binding import detach
from lakestream.metadata.names.pointers import Pointer, Pointers, TableName
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system


class _Overtaken(Pointers):
    """Between the look at a table's name and its renaming, another process finishes with the table."""

    async def name_of(self, table_id: UUID) -> TableName | None:
        found = await super().name_of(table_id)
        await self.drop(table_id)
        return found


async def test_a_table_that_another_dropped_meanwhile_is_detached() -> None:
    """Whoever finds a name without a pointer, or a pointer without a name, drops what is left of the two."""
    pointers = _Overtaken(MemoryStore(system()))
    await pointers.add(ORDERS, Pointer("there", bound=True))
    await pointers.bind(ORDERS, TableName(("default",), "orders"), make_namespace=True)
    assert await detach(pointers, ORDERS) is None
    assert await pointers.get(ORDERS) is None
    assert await pointers.tables(("default",)) == []
