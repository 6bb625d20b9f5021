"""Bugs on the way of typed rows: tables that do not know the schemas of their rows, letters that are lost."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lakestream.errors import Unavailable
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving import evolving, worker
from lakestream.frontier.upkeep import replaying, rewrite
from lakestream.metadata.topics.list import Topic
from lakestream.metadata.topics.tables import value_subject
from lakestream.schemas.growing import BY_ID, grown
from lakestream.table.shape import ValueSchema
from lakestream.table.view import View
from simulator.bugs.registry import swapped, typed_bug


@typed_bug
def rows_committed_before_their_schemas() -> Iterator[None]:
    """Tiles are written by schemas that the table is to get behind them."""

    async def early(lake: Lake, topic: Topic, view: View, planned: Any, outcomes: Sequence[Any]) -> View | None:
        unknown = frozenset[int]().union(*(outcome.unknown_schemas for outcome in outcomes))
        learned = await _with_schemas(lake, topic, view, unknown)
        return learned if learned.shape != view.shape else None

    with swapped(worker, evolving.learn, early):
        yield


@typed_bug
def letters_filled_by_schemas_that_only_the_replay_knows() -> Iterator[None]:
    """A replay asks the registry, and not the table."""
    with swapped(replaying, evolving.teach, _with_schemas):
        yield


@typed_bug
def unknown_schemas_kept_as_trouble() -> Iterator[None]:
    """Of an id that nobody knows yet the table knows for good that its values stay bytes."""
    real = evolving.teach

    async def teach(lake: Lake, topic: Topic, view: View, schema_ids: Collection[int]) -> View:
        view = await real(lake, topic, view, schema_ids)
        known = {each.schema_id for each in view.shape.schemas}
        missing = [ValueSchema(each, "", trouble="nobody knows it") for each in schema_ids if each not in known]
        if not missing or not view.shape.codec:
            return view
        shape = grown(view.shape, missing, BY_ID, view.last_column_id, view.own_names)
        return await lake.catalog.evolve(view, shape)

    with swapped(evolving, real, teach):
        yield


@typed_bug
def filled_files_discarded_after_an_unknown_outcome() -> Iterator[None]:
    """A replay whose commit was not answered takes its files back."""
    store, in_place = rewrite.store_outputs, rewrite.put_in_place
    stored: list[Any] = []

    async def noted(*args: Any) -> Any:
        stored[:] = await store(*args)
        return list(stored)

    async def tidy(lake: Any, *args: Any) -> Any:
        stored.clear()
        try:
            return await in_place(lake, *args)
        except Unavailable:
            await rewrite.discard(lake, list(stored))
            raise

    with swapped(rewrite, store, noted), swapped(replaying, in_place, tidy):
        yield


async def _with_schemas(lake: Lake, topic: Topic, view: View, schema_ids: Collection[int]) -> View:
    """As `teach` gives it, and the table has nothing of it."""
    subject = value_subject(topic.name, topic.options.value_subject)
    found = [await lake.schemas.by_id(each, subject) for each in sorted(schema_ids)]
    known = [each for each in found if each is not None]
    return replace(view, shape=grown(view.shape, known, BY_ID, view.last_column_id, view.own_names))
