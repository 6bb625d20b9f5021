"""Tables that grow with the schemas of their values, before rows that need them are committed.

A table is evolved by one attempt on exactly one view, and made anew from a fresh one when somebody else was first: a
schema that a table knows it knows for good. Whoever writes rows does so by the shape of a view that was committed, so
the schema of every row is in the table with it or before it.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from lakestream.errors import Conflict, LakestreamError
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.replacement import frontier_of
from lakestream.frontier.moving.tiles.plan import Plan
from lakestream.frontier.moving.tiles.tile import TileOutcome
from lakestream.frontier.moving.tiles.writing import MAX_UNKNOWN
from lakestream.metadata.topics.list import Topic
from lakestream.metadata.topics.tables import value_subject
from lakestream.schemas.growing import BY_ID, RAW_FORMAT, STRING, grown, settled
from lakestream.table.shape import TableShape, ValueSchema
from lakestream.table.view import View

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 20
ROUNDS_MOST: Final = 3
"""How often the same records are planned again for schemas that were met. What is left then keeps its bytes."""


async def settle(lake: Lake, topic: Topic, view: View) -> View:
    """The view once the table has what the topic's setting asks for whatever its values are. If that cannot be now, the
    table stays as it is."""
    options = topic.options
    if options.value_format == RAW_FORMAT or (options.value_format in (BY_ID, STRING) and view.shape.codec):
        return view
    try:
        latest = await lake.schemas.latest(value_subject(topic.name, options.value_subject))
        return await _evolved(lake, topic, view, partial(settled, latest=latest))
    except LakestreamError as error:
        _log.warning("topic %s: its table cannot get the columns of the latest schema now: %s", topic.name, error)
        return view


async def learn(lake: Lake, topic: Topic, view: View, planned: Plan, outcomes: Sequence[TileOutcome]) -> View | None:
    """The view of the table with the schemas that its tiles did not know, from which the same has to be planned again.
    None: there are none that anybody knows, or the plan's turn is over. Raises what the source of schemas raises."""
    unknown = frozenset[int]().union(*(outcome.unknown_schemas for outcome in outcomes))
    learned = await teach(lake, topic, view, sorted(unknown)[:MAX_UNKNOWN])
    if learned.shape == view.shape or any(
        frontier_of(learned, each.partition) != each.start for each in planned.ranges
    ):
        return None
    return learned


async def teach(lake: Lake, topic: Topic, view: View, schema_ids: Collection[int]) -> View:
    """The view of the table with those of the schemas that anybody knows. Raises what the source of schemas raises."""
    found = await _found(lake, topic, schema_ids)
    return await _evolved(lake, topic, view, partial(grown, schemas=found)) if found else view


async def latest_schema(lake: Lake, topic: Topic) -> tuple[View, ValueSchema | None]:
    """By which values that are made here are to be written, and the view of the table that has its columns. Raises
    what the source of schemas raises, `UnknownStream`, `Conflict`."""
    view = await lake.catalog.load(topic.topic_id)
    wanted = topic.options.value_format
    if wanted in (RAW_FORMAT, STRING):
        return view, None
    latest = await lake.schemas.latest(value_subject(topic.name, topic.options.value_subject))
    if latest is None:
        return view, None
    change = partial(grown, schemas=[latest]) if wanted == BY_ID else partial(settled, latest=latest)
    return await _evolved(lake, topic, view, change), latest


async def _found(lake: Lake, topic: Topic, schema_ids: Collection[int]) -> list[ValueSchema]:
    subject = value_subject(topic.name, topic.options.value_subject)
    found = [await lake.schemas.by_id(schema_id, subject) for schema_id in schema_ids]
    return [schema for schema in found if schema is not None]


async def _evolved(lake: Lake, topic: Topic, view: View, change: Callable[..., TableShape]) -> View:
    wanted = topic.options.value_format
    for _ in range(_ATTEMPTS):
        grow = partial(change, view.shape, value_format=wanted, last_id=view.last_column_id, taken=view.own_names)
        # A schema of Protobuf is compiled, in a process of its own.
        shape = await lake.runtime.off_loop(grow)
        if shape == view.shape:
            return view
        try:
            evolved = await lake.catalog.evolve(view, shape)
        except Conflict:
            view = await lake.catalog.load(view.topic_id)
            continue
        for schema in shape.schemas[len(view.shape.schemas) :]:
            _tell(topic, schema)
        return evolved
    raise Conflict(f"topic {topic.name}: others changed its table {_ATTEMPTS} times in a row while it was evolved")


def _tell(topic: Topic, schema: ValueSchema) -> None:
    if schema.trouble:
        _log.warning(
            "topic %s: values of schema %d stay bytes in the table: %s", topic.name, schema.schema_id, schema.trouble
        )
    else:
        _log.info("topic %s: its table has the columns of schema %d", topic.name, schema.schema_id)
