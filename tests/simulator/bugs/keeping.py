"""Bugs in the upkeep of tables: merges, folds and retention."""

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from support.tables.simulated import SimulatedTables

from lakestream.catalog.port import TableViews
from lakestream.errors import Unavailable
from lakestream.frontier.collecting import orphans
from lakestream.frontier.delta import Mirrors, mirror
from lakestream.frontier.moving.tiles.naming import FileBound
from lakestream.frontier.upkeep import compaction, maintenance, retention, rewrite
from lakestream.frontier.upkeep.retention import Retirement
from lakestream.stream.fetching.views import ViewCache
from lakestream.table.view import View
from simulator.bugs.registry import staged, swapped, upkeep_bug
from simulator.faults import Aim
from simulator.scene import Stage

_SLEEPY: Final = Stage(aims=(Aim("get tables", "pause", 0.1, 6), Aim("transact table", "pause", 0.1, 6)))


@upkeep_bug
def rows_dropped_before_the_log_start() -> Iterator[None]:
    """Old rows leave the table while the stream still begins with them."""
    real = retention.retire

    async def hasty(lake: Any, topic: Any, planned: Retirement) -> Any:
        done = await real(lake, topic, Retirement({}, planned.drop))
        await real(lake, topic, Retirement(planned.log_starts))
        return done

    with swapped(maintenance, real, hasty):
        yield


@staged(Stage(aims=(Aim("get log", "slow", 0.3, 30), Aim("range log", "slow", 0.3, 30)), stream={"view_check_ms": 0}))
@upkeep_bug
def head_older_than_the_view() -> Iterator[None]:
    """A broker takes rows that retention took for a gap: it has not heard of the log start that passed them."""
    with swapped(ViewCache, ViewCache.loaded_at_s, lambda self, topic_id: float("-inf")):
        yield


@upkeep_bug
def merge_on_a_table_that_has_changed() -> Iterator[None]:
    """A merge is committed though some of its files were rewritten since it read them."""
    real = SimulatedTables.commit

    async def careless(self: SimulatedTables, view: Any, *, add: Any, remove: Any, frontier: Any, **more: Any) -> Any:
        live = [file for file in remove if file in view.files]
        return await real(self, view, add=add, remove=live, frontier=frontier, **more)

    with swapped(rewrite, rewrite.still_holds, lambda *_: True), swapped(SimulatedTables, real, careless):
        yield


@upkeep_bug
def merged_files_discarded_after_an_unknown_outcome() -> Iterator[None]:
    """A merge whose commit got no reply deletes what it wrote, which the table may name by now."""
    store, in_place = rewrite.store_outputs, rewrite.put_in_place
    stored: list[Any] = []

    async def noted(*args: Any) -> Any:
        stored[:] = await store(*args)
        return list(stored)

    async def tidy(lake: Any, *args: Any, **options: Any) -> Any:
        stored.clear()
        try:
            return await in_place(lake, *args, **options)
        except Unavailable:
            await rewrite.discard(lake, list(stored))
            raise

    with (
        swapped(rewrite, store, noted),
        swapped(maintenance, in_place, tidy),
        swapped(compaction, in_place, tidy),
    ):
        yield


@staged(Stage(aims=(Aim("transact table", "slow", 0.4, 30), Aim("put tables", "slow", 0.2, 30))))
@upkeep_bug
def merged_files_collected_before_their_commit() -> Iterator[None]:
    """A merged file that no table names is taken for an orphan, whatever its name says."""
    real = orphans.is_lost

    with swapped(orphans, real, lambda at, named: not isinstance(at, FileBound) or real(at, named)):
        yield


@upkeep_bug
def fold_of_the_dirty_alone() -> Iterator[None]:
    """A fold does not look into files that were folded before, though some of their records are newer."""
    real = compaction.plan_fold

    def plan_fold(*args: Any) -> Any:
        planned = real(*args)
        return planned and compaction.Fold(planned.dirty, (), planned.folded, planned.clean_below, planned.learns_all)

    with swapped(maintenance, real, plan_fold):
        yield


@upkeep_bug
def fold_leaves_what_was_folded() -> Iterator[None]:
    """A fold marks its files, but takes nothing out of those that were folded before."""
    real = compaction.plan_fold

    def plan_fold(*args: Any) -> Any:
        planned = real(*args)
        return planned and compaction.Fold(planned.dirty, planned.newer, (), planned.clean_below, planned.learns_all)

    with swapped(maintenance, real, plan_fold):
        yield


@staged(_SLEEPY)
@upkeep_bug
def mirror_of_a_view_from_before_the_log() -> Iterator[None]:
    """A Delta mirror reads the table first and the log second: one that slept in between puts Delta back."""
    real = Mirrors.__init__

    class Early:
        """Tables as they are when their pointer is asked for, which is before the log is read."""

        def __init__(self, views: TableViews) -> None:
            self._views = views
            self._early: dict[UUID, View] = {}

        async def pointer(self, topic_id: UUID) -> str | None:
            found = await self._views.pointer(topic_id)
            if found is not None:
                self._early[topic_id] = await self._views.load(topic_id)
            return found

        async def load(self, topic_id: UUID) -> View:
            return self._early.get(topic_id) or await self._views.load(topic_id)

    def begin(self: Mirrors, views: TableViews, *more: Any) -> None:
        real(self, Early(views), *more)

    with swapped(Mirrors, real, begin), swapped(mirror, mirror.version_of, lambda location: -1):
        yield
