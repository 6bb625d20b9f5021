"""Bugs of readers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from support.tables.simulated import SimulatedTables

from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.tables import table_name
from lakestream.model import StreamPartition
from lakestream.stream.fetching import cache, fetch, tails, views
from lakestream.table.view import View
from simulator.bugs.registry import bug, staged, swapped
from simulator.outsiders import TOPIC
from simulator.scene import Stage


@bug
def name_instead_of_uuid() -> Iterator[None]:
    """Tables are found by the topic's name: one created again under an old name gets its predecessor's rows."""
    create, load = SimulatedTables.create, SimulatedTables.load
    pointer, named = SimulatedTables.pointer, SimulatedTables.named

    async def create_once(
        self: SimulatedTables, topic_id: UUID, name: str, partitions: int, *, table: TableName | None = None
    ) -> Any:
        owner = await self.owner(table or table_name(name))
        return await (create(self, topic_id, name, partitions) if owner is None else load(self, owner))

    def by_name(real: Any) -> Any:
        async def find(self: SimulatedTables, topic_id: UUID) -> Any:
            return await real(self, await self.owner(table_name(TOPIC)) or topic_id)

        return find

    async def keep(self: SimulatedTables, topic_id: UUID) -> None:
        """The next topic of that name will want it."""

    with (
        swapped(SimulatedTables, create, create_once),
        swapped(SimulatedTables, load, by_name(load)),
        swapped(SimulatedTables, pointer, by_name(pointer)),
        swapped(SimulatedTables, named, by_name(named)),
        swapped(SimulatedTables, SimulatedTables.detach, keep),
    ):
        yield


@bug
def cache_served_across_recreation() -> Iterator[None]:
    """The cache knows partitions by their number only."""
    real_keep, real_find, real_read = cache.ExtentCache.keep, cache.ExtentCache.find, cache.ExtentCache.read

    def nameless(partition: StreamPartition) -> StreamPartition:
        return StreamPartition(UUID(int=0), partition.index)

    def keep(self: Any, partition: StreamPartition, *rest: Any) -> Any:
        return real_keep(self, nameless(partition), *rest)

    def find(self: Any, partition: StreamPartition, offset: int) -> Any:
        return real_find(self, nameless(partition), offset)

    async def read(self: Any, partition: StreamPartition, extent: Any) -> Any:
        return await real_read(self, nameless(partition), extent)

    with (
        swapped(cache.ExtentCache, real_keep, keep),
        swapped(cache.ExtentCache, real_find, find),
        swapped(cache.ExtentCache, real_read, read),
    ):
        yield


@bug
def deleted_rows_served_from_memory() -> Iterator[None]:
    """What is in memory is served below the frontier, too, whoever has changed the table since."""
    with swapped(fetch, fetch.intact_from, lambda view, partition: 0):
        yield


@staged(Stage("engine"))
@bug
def reader_routed_by_the_head() -> Iterator[None]:
    """Below head.frontier an older view is asked, and what it lacks is taken for a gap."""
    get, current = tails.Tails.get, views.ViewCache.current
    frontiers: dict[UUID, dict[int, int]] = {}

    def noted(self: tails.Tails, partition: StreamPartition) -> tails.Tail:
        tail = get(self, partition)
        frontiers.setdefault(partition.topic_id, {})[partition.index] = tail.head.frontier
        return tail

    async def promised(self: views.ViewCache, topic_id: UUID, *, reload: bool = False) -> View | None:
        view = await current(self, topic_id, reload=reload)
        if view is None:
            return None
        known = frontiers.get(topic_id, {})
        ends = [max(end, known.get(index, 0)) for index, end in enumerate(view.frontier)]
        return replace(view, frontier=tuple(ends))

    with swapped(tails.Tails, get, noted), swapped(views.ViewCache, current, promised):
        yield


@bug
def stale_head_says_out_of_range() -> Iterator[None]:
    """An offset beyond the end that this broker knows is refused without asking the store."""
    real = tails.Tails.refresh

    async def refresh(self: Any, partitions: Any) -> None:
        await real(self, [partition for partition in partitions if not self.knows(partition)])

    with swapped(tails.Tails, real, refresh):
        yield


@bug
def missing_object_taken_for_a_gap() -> Iterator[None]:
    """An extent that is gone from the tail is skipped instead of looked for in a fresh view."""
    real, current = fetch.Fetcher.read_extents, views.ViewCache.current
    first: WeakKeyDictionary[views.ViewCache, dict[UUID, View]] = WeakKeyDictionary()

    async def read(self: Any, tail: Any, request: Any, offset: int, budget_bytes: int, *, at_least_one: bool) -> Any:
        following = tail.extents_from(offset)
        if following and following[0].base_offset > offset:
            offset = following[0].base_offset
        return await real(self, tail, request, offset, budget_bytes, at_least_one=at_least_one)

    async def first_view(self: views.ViewCache, topic_id: UUID, *, reload: bool = False) -> View | None:
        """Views that are loaded once and never again."""
        held = first.setdefault(self, {})
        if topic_id not in held:
            view = await current(self, topic_id, reload=reload)
            if view is None:
                return None
            held[topic_id] = view
        return held[topic_id]

    with swapped(fetch.Fetcher, real, read), swapped(views.ViewCache, current, first_view):
        yield
