"""Tables that grow with the schemas of their values and keys, before rows that need them are committed.

A table is evolved by one attempt on exactly one view, and made anew from a fresh one when somebody else was first: a
schema that a table knows it knows for good. Whoever writes rows does so by the shape of a view that was committed, so
the schema of every row is in the table with it or before it.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from lakestream.errors import Conflict, LakestreamError
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.replacement import frontier_of
from lakestream.frontier.moving.tiles.plan import Plan
from lakestream.frontier.moving.tiles.tile import TileOutcome
from lakestream.frontier.moving.tiles.writing import MAX_UNKNOWN
from lakestream.metadata.topics.list import Topic
from lakestream.metadata.topics.tables import key_subject, value_subject
from lakestream.schemas.growing import BY_ID, RAW_FORMAT, STRING, grown, settled
from lakestream.schemas.growing_keys import grown_keys, settled_keys
from lakestream.table.shape import TableShape, ValueSchema, key_shape
from lakestream.table.view import View

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 20
ROUNDS_MOST: Final = 3
"""How often the same records are planned again for schemas that were met. What is left then keeps its bytes."""


class _Side(NamedTuple):
    """Values or keys: what the topic asks for, and how the table grows with their schemas. `schemas`: that it has."""

    what: str
    wanted: str
    subject: str
    codec: Callable[[TableShape], str]
    schemas: Callable[[TableShape], Sequence[ValueSchema]]
    settled: Callable[..., TableShape]
    grown: Callable[..., TableShape]
    message: str = ""


def _values(topic: Topic) -> _Side:
    subject = value_subject(topic.name, topic.options.value_subject)
    wanted = topic.options.value_format
    return _Side(
        *("values", wanted, subject, lambda shape: shape.codec, lambda shape: shape.schemas, settled, grown),
        message=topic.options.value_message,
    )


def _keys(topic: Topic) -> _Side:
    return _Side(
        "keys",
        topic.options.key_format,
        key_subject(topic.name, topic.options.key_subject),
        lambda shape: key_shape(shape).codec,
        lambda shape: key_shape(shape).schemas,
        settled_keys,
        grown_keys,
    )


async def settle(lake: Lake, topic: Topic, view: View) -> View:
    """The view once the table has what the topic's settings ask for whatever its values and keys are. If that cannot be
    now, the table stays as it is."""
    for side in (_values(topic), _keys(topic)):
        if side.wanted == RAW_FORMAT or (side.wanted in (BY_ID, STRING) and side.codec(view.shape)):
            continue
        try:
            latest = await _latest(lake, side)
            view = await _evolved(lake, topic, side, view, partial(side.settled, latest=latest))
        except LakestreamError as error:
            _log.warning(
                "topic %s: its table cannot get the columns of the latest schema of its %s now: %s",
                topic.name,
                side.what,
                error,
            )
    return view


async def learn(lake: Lake, topic: Topic, view: View, planned: Plan, outcomes: Sequence[TileOutcome]) -> View | None:
    """The view of the table with the schemas that its tiles did not know, from which the same has to be planned again.
    None: there are none that anybody knows, or the plan's turn is over. Raises what the source of schemas raises."""
    unknown = frozenset[int]().union(*(outcome.unknown_schemas for outcome in outcomes))
    of_keys = frozenset[int]().union(*(outcome.unknown_key_schemas for outcome in outcomes))
    learned = await teach(lake, topic, view, sorted(unknown)[:MAX_UNKNOWN])
    learned = await teach_keys(lake, topic, learned, sorted(of_keys)[:MAX_UNKNOWN])
    if learned.shape == view.shape or any(
        frontier_of(learned, each.partition) != each.start for each in planned.ranges
    ):
        return None
    return learned


async def teach(lake: Lake, topic: Topic, view: View, schema_ids: Collection[int]) -> View:
    """The view of the table with those of the schemas that anybody knows. Raises what the source of schemas raises."""
    return await _taught(lake, topic, _values(topic), view, schema_ids)


async def teach_keys(lake: Lake, topic: Topic, view: View, schema_ids: Collection[int]) -> View:
    """The same with schemas of keys."""
    return await _taught(lake, topic, _keys(topic), view, schema_ids)


async def _taught(lake: Lake, topic: Topic, side: _Side, view: View, schema_ids: Collection[int]) -> View:
    asked = [await lake.schemas.by_id(schema_id, side.subject) for schema_id in schema_ids]
    found = [schema for schema in asked if schema is not None]
    return await _evolved(lake, topic, side, view, partial(side.grown, schemas=found)) if found else view


async def latest_schema(lake: Lake, topic: Topic) -> tuple[View, ValueSchema | None]:
    """By which values that are made here are to be written, and the view of the table that has its columns. Raises
    what the source of schemas raises, `UnknownStream`, `Conflict`."""
    view = await lake.catalog.load(topic.topic_id)
    side = _values(topic)
    if side.wanted in (RAW_FORMAT, STRING):
        return view, None
    latest = await _latest(lake, side)
    if latest is None:
        return view, None
    change = partial(grown, schemas=[latest]) if side.wanted == BY_ID else partial(settled, latest=latest)
    return await _evolved(lake, topic, side, view, change), latest


async def _latest(lake: Lake, side: _Side) -> ValueSchema | None:
    latest = await lake.schemas.latest(side.subject)
    return latest and msgspec.structs.replace(latest, message=side.message)


async def _evolved(lake: Lake, topic: Topic, side: _Side, view: View, change: Callable[..., TableShape]) -> View:
    for _ in range(_ATTEMPTS):
        grow = partial(change, view.shape, value_format=side.wanted, last_id=view.last_column_id, taken=view.own_names)
        # A schema of Protobuf is compiled, in a process of its own.
        shape = await lake.runtime.off_loop(grow)
        if shape == view.shape:
            return view
        try:
            evolved = await lake.catalog.evolve(view, shape)
        except Conflict:
            view = await lake.catalog.load(view.topic_id)
            continue
        for schema in side.schemas(shape)[len(side.schemas(view.shape)) :]:
            _tell(topic, side.what, schema)
        return evolved
    raise Conflict(f"topic {topic.name}: others changed its table {_ATTEMPTS} times in a row while it was evolved")


def _tell(topic: Topic, what: str, schema: ValueSchema) -> None:
    if schema.trouble:
        told = "topic %s: %s of schema %d stay bytes in the table: %s"
        _log.warning(told, topic.name, what, schema.schema_id, schema.trouble)
    else:
        _log.info("topic %s: its table has the columns of schema %d of its %s", topic.name, schema.schema_id, what)
