"""Bugs on the way from the WAL into the table, and in the collection of what is left behind."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from uuid import UUID

import msgspec
from support.simulated_tables import SimulatedTables

from lakestream.errors import Conflict, Unavailable
from lakestream.frontier.collecting import collector
from lakestream.frontier.moving import advance
from lakestream.frontier.moving.plan import Range
from lakestream.frontier.moving.replacement import frontier_of
from lakestream.frontier.moving.worker import Worker
from lakestream.metadata.log import partition as log
from lakestream.metadata.log.head import Head
from lakestream.model import DataFile, StreamPartition
from lakestream.table.view import View
from simulator import outsiders
from simulator.bugs.registry import bug


@bug
def delete_without_fence() -> Iterator[None]:
    """The collector trusts age: a broker that slept between PUT and commit finds its object gone."""

    async def nothing(store: Any, partition: StreamPartition, fence: int) -> Head | None:
        found = await log.read_head(store, partition)
        return found.head if found is not None else None

    with patch.object(collector, "raise_fence", nothing):
        yield


@bug
def delete_before_the_grace() -> Iterator[None]:
    """Whatever no extent names is collected at once, also what was uploaded a moment ago."""
    real = collector.Collector._candidates

    async def candidates(self: collector.Collector, fence: int, clusters: Any) -> Any:
        return await real(self, fence + collector.FENCE_DISTANCE + 1, clusters)

    with patch.object(collector.Collector, "_candidates", candidates):
        yield


@bug
def extents_read_before_the_fence() -> Iterator[None]:
    """Right steps, wrong order: what commits between the two is not seen."""

    async def fence_then_name(self: collector.Collector, contents: Any, fence: int) -> frozenset[str]:
        store, held = self._lake.store, list(contents)
        partitions = sorted({partition for each in held for partition in each.partitions})
        found = [await log.read_extents(store, partition) for partition in partitions]
        for partition in partitions:
            await log.raise_fence(store, partition, fence)
        return frozenset(extent.object_key for extents in found for extent in extents)

    with patch.object(collector.Collector, "_fence_then_name", fence_then_name):
        yield


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

    with _in_worker("commit", tidy):
        yield


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

    with patch.object(SimulatedTables, "load", load):
        yield


@bug
def frontier_moved_back_by_a_zombie() -> Iterator[None]:
    """The commit does not check that its ranges start at the table's frontier, nor the catalog that it falls."""
    with (
        patch.object(advance, "replaceable", lambda planned_on, now, ranges: ()),
        patch("support.simulated_tables.check_commit", lambda *_: None),
    ):
        yield


@bug
def replaces_whatever_is_new() -> Iterator[None]:
    """A late commit takes every file for an earlier part of its own rows that it did not plan on."""

    def careless(planned_on: View, now: View, ranges: Sequence[Range]) -> tuple[DataFile, ...] | None:
        if any(frontier_of(now, each.partition) >= each.end for each in ranges):
            return None
        known = {file.path for file in planned_on.files}
        return tuple(file for file in now.files if file.path not in known)

    with patch.object(advance, "replaceable", careless):
        yield


@bug
def catalog_retries_on_a_new_head() -> Iterator[None]:
    """The catalog's client resolves a conflict by itself: a zombie's rows go in twice."""
    real = SimulatedTables.commit

    async def stubborn(self: SimulatedTables, view: Any, *, add: Any, remove: Any, frontier: Any) -> Any:
        while True:
            try:
                return await real(self, view, add=add, remove=remove, frontier=frontier)
            except Conflict:
                view = await self.load(view.topic_id)
                frontier = tuple(map(max, frontier, view.frontier))
                remove = [file for file in remove if file in view.files]

    with patch.object(SimulatedTables, "commit", stubborn):
        yield


@bug
def property_only_commit() -> Iterator[None]:
    """The frontier is set by a second, unchecked change of the table."""
    real = SimulatedTables.commit

    async def two_steps(self: SimulatedTables, view: Any, *, add: Any, remove: Any, frontier: Any) -> Any:
        done = await real(self, view, add=add, remove=remove, frontier=view.frontier)
        await asyncio.sleep(0.5)
        row = await self._pointers.get(view.topic_id)
        if row is None or not row.pointer.bound:
            return done
        latest = self._metadata[row.pointer.metadata_location]
        location = self._write(replace(latest, frontier=frontier))
        await self._pointers.swing(view.topic_id, row.version, replace_location(row.pointer, location))
        return replace(self._metadata[location], table=view.table)

    with patch.object(SimulatedTables, "commit", two_steps):
        yield


@bug
def rollback_takes_the_frontier_along() -> Iterator[None]:
    """An owner's rollback to an older snapshot brings its frontier back, and nothing refuses that."""
    with (
        patch.object(outsiders, "frontier_of_rollback", lambda view, older: older.frontier),
        patch("support.simulated_tables.check_commit", lambda *_: None),
    ):
        yield


@bug
def extents_dropped_before_the_table_commit() -> Iterator[None]:
    """The log is told that the table has the rows before it has them."""
    real = advance.commit

    async def hasty(lake: Any, tail: Any, planned: Any, outcomes: Any) -> Any:
        promised = replace(tail.view, frontier=advance._beyond(tail.view, planned.ranges))
        await advance.advance(lake, tail, promised)
        return await real(lake, tail, planned, outcomes)

    with _in_worker("commit", hasty):
        yield


@bug
def frontier_from_the_plan() -> Iterator[None]:
    """A worker that was superseded advances the log to what it had planned."""
    real = Worker._finish

    async def finish(self: Worker, tail: Any, plan: Any, outcomes: Any, progress: Any) -> None:
        try:
            await real(self, tail, plan, outcomes, progress)
        except Unavailable:
            promised = replace(tail.view, frontier=advance._beyond(tail.view, plan.ranges))
            await advance.advance(self._lake, tail, promised)
            raise

    with patch.object(Worker, "_finish", finish):
        yield


@bug
def off_by_one_range_delete() -> Iterator[None]:
    """The range of dropped extents ends one offset too late."""
    real = log._replace

    async def replace_too_much(*args: Any, delete_ranges: Any = ()) -> Any:
        wider = tuple((start, f"x/{int(end[2:], 16) + 1:016x}") for start, end in delete_ranges)
        return await real(*args, delete_ranges=wider)

    with patch.object(log, "_replace", replace_too_much):
        yield


@contextmanager
def _in_worker(name: str, changed: Any) -> Iterator[None]:
    with patch(f"lakestream.frontier.moving.worker.{name}", changed):
        yield


def replace_location(pointer: Any, location: str) -> Any:
    return msgspec.structs.replace(pointer, metadata_location=location)
