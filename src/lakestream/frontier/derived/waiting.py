"""What the upkeep of a stream's table leaves alone because a table that is derived from it has not seen it yet.

A row leaves the stream's table only when every derived table has seen it, or when it has waited `derived_wait_ms`
longer than its retention: a derived table that fails for so long holds nobody's bucket for ever, and has to be made
anew. Folds have no such limit, for they only save room.
"""

from uuid import UUID

from lakestream.catalog.derived.port import DerivedTables


async def seen(tables: DerivedTables | None, topic_id: UUID) -> tuple[int, ...] | None:
    """How far all derived tables of the topic have come, by partition; beyond its length none. None: there are no such
    tables, and nothing waits."""
    if tables is None:
        return None
    reached: tuple[int, ...] | None = None
    for row in await tables.of_topic(topic_id):
        derived = await tables.load(row)
        frontier = row.frontier if derived is None else derived.view.frontier
        reached = frontier if reached is None else tuple(map(min, reached, frontier))
    return reached
