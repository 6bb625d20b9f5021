"""Bugs on the way from the WAL into the table, and in the collection of what is left behind."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec
from support.tables import simulated as simulated_tables
from support.tables.simulated import SimulatedTables

from lakestream.errors import Conflict, Unavailable, UnknownStream
from lakestream.frontier.collecting import collector
from lakestream.frontier.moving import advance, worker
from lakestream.frontier.moving.replacement import frontier_of
from lakestream.frontier.moving.tiles.plan import Range
from lakestream.metadata.log import partition as log
from lakestream.metadata.log.head import HEAD, Head, extent_key
from lakestream.metadata.store import Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.model import DataFile, StreamPartition
from lakestream.table.view import View
from simulator import outsiders
from simulator.bugs.registry import bug, staged, swapped
from simulator.faults import Aim
from simulator.scene import Stage


@staged(Stage("race"))
@bug
def delete_without_fence() -> Iterator[None]:
    """The collector trusts age: a broker that slept between PUT and commit finds its object gone."""

    async def nothing(store: Any, partition: StreamPartition, fence: int) -> Head | None:
        found = await log.read_head(store, partition)
        return found.head if found is not None else None

    with swapped(collector, collector.raise_fence, nothing):
        yield


@staged(Stage("race"))
@bug
def delete_before_the_grace() -> Iterator[None]:
    """Whatever no extent names is collected at once, also what was uploaded a moment ago."""
    real = collector.parse_key

    def older(key: str) -> Any:
        name = real(key)
        return name._replace(generation=max(0, name.generation - collector.FENCE_DISTANCE - 1))

    with swapped(collector, real, older):
        yield


@staged(Stage("race"))
@bug
def extents_read_before_the_fence() -> Iterator[None]:
    """Right steps, wrong order: what commits between the two is not seen."""
    fence, read = collector.raise_fence, collector.read_extents
    seen: dict[tuple[int, StreamPartition], Any] = {}

    async def read_then_fence(store: Any, partition: StreamPartition, above: int) -> Head | None:
        seen[id(store), partition] = await read(store, partition)
        return await fence(store, partition, above)

    async def read_before(store: Any, partition: StreamPartition) -> Any:
        return seen[id(store), partition]

    with swapped(collector, fence, read_then_fence), swapped(collector, read, read_before):
        yield


@staged(Stage(aims=(Aim("transact table", "lost reply", 0.3, 10),)))
@bug
def orphan_reaped_too_early() -> Iterator[None]:
    """Files are deleted though the outcome of their commit is not known."""
    real = advance.commit

    async def tidy(lake: Any, tail: Any, planned: Any, outcomes: Any) -> Any:
        try:
            return await real(lake, tail, planned, outcomes)
        except Unavailable:
            await advance.discard(lake, [file for outcome in outcomes for file in outcome.files])
            raise

    with swapped(worker, real, tidy):
        yield


@staged(Stage("engine"))
@bug
def marker_lost_with_its_snapshot() -> Iterator[None]:
    """The frontier is worked out from the rows that are left, not kept on its own."""
    real = SimulatedTables.load

    async def load(self: SimulatedTables, topic_id: UUID) -> Any:
        view = await real(self, topic_id)
        ends = [0] * len(view.frontier)
        for file in view.files:
            if file.partition_min == file.partition_max and file.partition_min is not None:
                ends[file.partition_min] = max(ends[file.partition_min], (file.offset_max or 0) + 1)
            else:
                return view
        return replace(view, frontier=tuple(ends))

    with swapped(SimulatedTables, real, load):
        yield


@bug
def frontier_moved_back_by_a_zombie() -> Iterator[None]:
    """The commit does not check that its ranges start at the table's frontier, nor the catalog that it falls."""
    with (
        swapped(advance, advance.replaceable, lambda *_: ()),
        _unchecked_commits(),
    ):
        yield


@staged(Stage("engine", scene={"pipelines": 2}))
@bug
def replaces_whatever_is_new() -> Iterator[None]:
    """A late commit takes every file for an earlier part of its own rows that it did not plan on."""

    def careless(planned_on: View, now: View, ranges: Sequence[Range], *_: Any) -> tuple[DataFile, ...] | None:
        if any(frontier_of(now, each.partition) >= each.end for each in ranges):
            return None
        known = {file.path for file in planned_on.files}
        return tuple(file for file in now.files if file.path not in known)

    with swapped(advance, advance.replaceable, careless):
        yield


@bug
def catalog_retries_on_a_new_head() -> Iterator[None]:
    """The catalog's client resolves a conflict by itself: a zombie's rows go in twice."""
    real = SimulatedTables.commit

    async def stubborn(self: SimulatedTables, view: Any, *, add: Any, remove: Any, frontier: Any, **more: Any) -> Any:
        while True:
            try:
                return await real(self, view, add=add, remove=remove, frontier=frontier, **more)
            except Conflict:
                view = await self.load(view.topic_id)
                frontier = tuple(map(max, frontier, view.frontier))
                remove = [file for file in remove if file in view.files]

    with swapped(SimulatedTables, real, stubborn):
        yield


@bug
def property_only_commit() -> Iterator[None]:
    """The frontier is set by a second, unchecked change of the table."""
    real = SimulatedTables.commit

    async def two_steps(self: SimulatedTables, view: Any, *, add: Any, remove: Any, frontier: Any, **more: Any) -> Any:
        done = await real(self, view, add=add, remove=remove, frontier=view.frontier, **more)
        await asyncio.sleep(0.5)
        while True:
            try:
                return await real(self, await self.load(view.topic_id), add=(), remove=(), frontier=frontier)
            except UnknownStream:
                return done
            except Conflict:
                continue

    with swapped(SimulatedTables, real, two_steps), _unchecked_commits():
        yield


@staged(Stage("engine", scene={"roll_back": 0.6}))
@bug
def rollback_takes_the_frontier_along() -> Iterator[None]:
    """An owner's rollback to an older snapshot brings its frontier back, and nothing refuses that."""
    with (
        swapped(outsiders, outsiders.frontier_of_rollback, lambda view, older: older.frontier),
        _unchecked_commits(),
    ):
        yield


@bug
def extents_dropped_before_the_table_commit() -> Iterator[None]:
    """The log is told that the table has the rows before it has them."""
    real = advance.commit

    async def hasty(lake: Any, tail: Any, planned: Any, outcomes: Any) -> Any:
        promised = replace(tail.view, frontier=advance.frontier_beyond(tail.view, planned.ranges))
        await advance.advance(lake, tail, promised)
        return await real(lake, tail, planned, outcomes)

    with swapped(worker, real, hasty):
        yield


@bug
def frontier_from_the_plan() -> Iterator[None]:
    """A worker that was superseded advances the log to what it had planned."""
    real = advance.commit

    async def commit(lake: Any, tail: Any, planned: Any, outcomes: Any) -> Any:
        try:
            return await real(lake, tail, planned, outcomes)
        except Unavailable:
            promised = replace(tail.view, frontier=advance.frontier_beyond(tail.view, planned.ranges))
            await advance.advance(lake, tail, promised)
            raise

    with swapped(worker, real, commit):
        yield


@bug
def off_by_one_range_delete() -> Iterator[None]:
    """The range of dropped extents ends one offset too late."""
    real = MemoryStore.transact

    def wider(given: Transaction) -> Transaction:
        if HEAD not in given.puts:
            return given
        ranges = [(start, extent_key(int(end[2:], 16) + 1)) for start, end in given.delete_ranges]
        return msgspec.structs.replace(given, delete_ranges=ranges)

    async def transact(self: MemoryStore, given: Sequence[Transaction]) -> Any:
        return await real(self, list(map(wider, given)))

    with swapped(MemoryStore, real, transact):
        yield


def _unchecked_commits() -> AbstractContextManager[Any]:
    """A catalog that takes every commit."""
    return swapped(simulated_tables, simulated_tables.check_commit, lambda *_: None)
