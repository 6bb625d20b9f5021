"""Derived tables brought on: the rows of a stream's table between their frontier and its own.

    stream's view → derived view → a step of rows → what it changes → one commit (carries the frontier)

Every step is idempotent and anybody may take over after any of them: what is done is read from the derived table, and a
commit holds only on exactly the view that it was worked out from. So two workers at once do work twice, never a change.
State kept here is advice only.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final
from uuid import UUID

from lakestream.catalog.derived.port import DerivedTables, DerivedView
from lakestream.errors import Conflict, LakestreamError, StorageError, UnknownStream
from lakestream.frontier.derived.applying import commit_changed
from lakestream.frontier.derived.wanted import followed, has_name, may_stay, recipes, wanted_name
from lakestream.frontier.isolation import isolated
from lakestream.frontier.lake import Lake
from lakestream.frontier.upkeep.rewrite import is_inside
from lakestream.metadata.names.derived import DerivedRow
from lakestream.metadata.store import Address
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.table.deriving.answers import LetterReader
from lakestream.table.deriving.maker import Made, Maker
from lakestream.table.deriving.reading import StreamRows, Stretch
from lakestream.table.deriving.recipe import DerivedShape, Recipe, derived_shape
from lakestream.table.deriving.state import StateFiles
from lakestream.table.view import View

_log = logging.getLogger(__name__)

_KEEP_MS: Final = 60_000
_AHEAD: Final = "is ahead of its stream's table, which was rebuilt from an older state: it is put away and made anew"


@dataclass(frozen=True, slots=True)
class Derivation:
    """What one pass did for a table: records read, rows added and deleted. `lag`: records left for later."""

    topic: str
    kind: str
    records: int = 0
    added: int = 0
    deleted: int = 0
    skipped: int = 0
    commits: int = 0
    lag: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Derived:
    """`put_away`: names of tables that no topic wants any more. `more`: some were left behind. `failures`: topic and
    error; those tables come round again."""

    done: tuple[Derivation, ...] = ()
    put_away: tuple[str, ...] = ()
    failures: tuple[tuple[str, LakestreamError], ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class _Unkept:
    """How far a table has come to which nothing was added since a time, which is not written down yet."""

    frontier: tuple[int, ...]
    since_ms: int


class Deriver:
    def __init__(
        self, lake: Lake, topics: Topics, tables: DerivedTables, *, name: str, respect_leases: bool = True
    ) -> None:
        """`name` is the lease holder's. Without leases nothing is wrong, only work may be done twice and thrown
        away."""
        settings = lake.settings
        self._lake = lake
        self._topics = topics
        self._tables = tables
        self._name = name
        self._respect_leases = respect_leases
        self._rows = StreamRows(lake.objects, max_rows=settings.derive_rows, max_bytes=settings.derive_bytes)
        self._maker = Maker(lake.runtime.clock)
        self._state = StateFiles(lake.objects, max_bytes=settings.max_rewrite_bytes)
        self._letters = LetterReader(self._rows)
        self._moved: dict[UUID, None] = {}
        """Tables with something new."""
        self._seen: dict[UUID, tuple[str, str, str]] = {}
        """By derived table, its stream's name, the metadata of both, when nothing was left to do."""
        self._unkept: dict[UUID, _Unkept] = {}
        self._looked: dict[UUID, frozenset[str]] = {}
        """By table of dead letters, the files of the stream's table that were looked through for answered ones."""
        self._after: UUID | None = None
        self._asked = False

    def moved(self, topic_ids: Iterable[UUID]) -> None:
        """Their tables have new rows."""
        self._moved |= dict.fromkeys(topic_ids)

    async def run(self) -> Derived:
        """One pass over all topics that have derived tables, or may need some now. Errors of one topic are in the
        result; those of the lists are raised."""
        rows = await self._tables.every()
        listed = await self._topics.list()
        living = {topic.topic_id: topic for topic in listed}
        failures: list[tuple[str, LakestreamError]] = []
        put_away = await self._put_away(rows, living, failures)
        turn = self._turn({row.topic_id for row in rows})
        moved, self._moved = self._moved, {}
        done: list[Derivation] = []
        more = False
        for topic in listed:
            # The first pass looks at all: what moved before is not known.
            if not (topic.options.upsert or topic.topic_id in turn or topic.topic_id in moved or not self._asked):
                continue
            try:
                with isolated(topic.name):
                    found = await self.derive(topic, rows) if await self._leased(topic.topic_id) else []
            except UnknownStream:
                continue
            except LakestreamError as error:
                failures.append((topic.name, error))
                self._moved[topic.topic_id] = None
                continue
            done += found
            if any(each.lag for each in found):
                self._moved[topic.topic_id] = None
                more = True
        self._asked = True
        return Derived(tuple(done), tuple(put_away), tuple(failures), more)

    def _turn(self, known: AbstractSet[UUID]) -> frozenset[UUID]:
        """Some of the topics at a time, all of them in turn: others may have moved what is in their tables."""
        ordered = sorted(known)
        most = self._lake.settings.max_maintain_tables
        start = 0 if self._after is None else bisect_right(ordered, self._after)
        turn = [*ordered[start : start + most], *ordered[: max(0, min(start, start + most - len(ordered)))]]
        self._after = turn[-1] if turn else None
        return frozenset(turn)

    async def derive(self, topic: Topic, rows: Sequence[DerivedRow] | None = None) -> list[Derivation]:
        """Brings on what is derived from a topic, by a bounded number of steps. `rows`: those that there are."""
        known = {
            row.kind: row
            for row in (rows if rows is not None else await self._tables.every())
            if row.topic_id == topic.topic_id
        }
        view = await self._lake.catalog.load(topic.topic_id)
        if not is_inside(self._lake, view):
            return []
        done = []
        for recipe in recipes(topic.options, view.shape).values():
            row = known.get(recipe.kind)
            if row is not None and not may_stay(row, topic.options):
                continue
            found = await self._bring_on(topic, view, recipe, row)
            if found is not None:
                done.append(found)
        return done

    async def _bring_on(self, topic: Topic, view: View, recipe: Recipe, row: DerivedRow | None) -> Derivation | None:
        """None: there is nothing to do."""
        shape = _shape(topic, recipe, view)
        if row is None:
            row = await self._tables.announce(topic.topic_id, shape)
        derived = await self._tables.load(row)
        if derived is None and recipe.kind == "latest":
            derived = await self._tables.create(row, topic.name, shape, wanted_name(view, row.kind))
        if derived is not None and self._seen.get(row.table_id) == _state(view, derived):
            return None
        if derived is not None:
            derived = await self._prepared(topic, view, derived, shape)
        return await self._advance(topic, view, row, derived, shape)

    async def _prepared(self, topic: Topic, view: View, derived: DerivedView, shape: DerivedShape) -> DerivedView:
        """Under the name and with the columns that it should have."""
        row = derived.row
        if _is_ahead(derived.view.frontier, view.frontier):
            _log.warning("topic %s: %s %s", topic.name, derived.view.table, _AHEAD)
            await self._tables.put_away(row)
            raise Conflict(f"{derived.view.table} {_AHEAD}")
        wanted = wanted_name(view, row.kind)
        if not has_name(row, derived.view.table, wanted):
            await self._tables.rename(row, wanted)
            derived = await self._tables.load(row) or derived
        try:
            shape = followed(derived.shape, shape)
        except ValueError as error:
            raise StorageError(f"{derived.view.table} cannot follow its stream: {error}") from error
        return derived if shape == derived.shape else await self._tables.evolve(derived, shape)

    async def _advance(
        self, topic: Topic, view: View, row: DerivedRow, derived: DerivedView | None, shape: DerivedShape
    ) -> Derivation:
        """Steps, each a commit if it changes something; where nothing is for the table, the frontier of several is
        committed as one."""
        reached = _farther(row.frontier if derived is None else derived.view.frontier, self._unkept.get(row.table_id))
        records = added = deleted = skipped = commits = 0
        try:
            for _ in range(self._lake.settings.derive_steps):
                step = await self._rows.step(view, reached)
                if step is None:
                    break
                made = await self._make(view, step, shape if derived is None else derived.shape)
                records, skipped, reached = records + made.records, skipped + made.changes.skipped, step.end
                if made.changes.is_empty:
                    continue
                if derived is None:
                    derived = await self._tables.create(row, topic.name, shape, wanted_name(view, row.kind))
                    if derived.view.frontier != row.frontier:
                        raise Conflict(f"{derived.view.table} was made by somebody else just now")
                changed = await self._state.apply(derived.view, derived.shape, made.changes)
                derived = await commit_changed(self._lake, self._tables, derived, changed, reached)
                added, deleted, commits = added + changed.added, deleted + changed.deleted, commits + 1
            if await self._keep(row, derived, reached):
                commits += 1
                derived = await self._tables.load(row)
            if derived is not None and row.kind == "dlq":
                derived = await self._resolve(view, derived)
        except Conflict as error:
            # Somebody else was faster: what is left is found again.
            _log.info("topic %s, %s: %s", topic.name, row.kind, error)
            latest = await self._tables.load(row)
            reached = reached if latest is None else latest.view.frontier
        lag = _lag(reached, view.frontier)
        if derived is not None and not lag:
            self._seen[row.table_id] = _state(view, derived)
        rows = 0 if derived is None else _row_count(derived.view)
        return Derivation(topic.name, row.kind, records, added, deleted, skipped, commits, lag, rows)

    async def _keep(self, row: DerivedRow, derived: DerivedView | None, reached: tuple[int, ...]) -> bool:
        """Writes down how far a table has come to which nothing was added; whether by a commit. Of dead letters only
        now and then: whoever does not know it looks at the same rows again, and finds nothing."""
        kept = row.frontier if derived is None else derived.view.frontier
        if reached == kept:
            self._unkept.pop(row.table_id, None)
            return False
        now_ms = self._lake.runtime.clock.now_ms()
        known = self._unkept.get(row.table_id)
        since_ms = now_ms if known is None else known.since_ms
        if row.kind == "dlq" and now_ms - since_ms < _KEEP_MS:
            self._unkept[row.table_id] = _Unkept(reached, since_ms)
            return False
        self._unkept.pop(row.table_id, None)
        if derived is None:
            await self._tables.reached(row, reached)
            return False
        await self._tables.commit(derived, add=(), remove=frozenset(), frontier=reached)
        return True

    async def _resolve(self, view: View, derived: DerivedView) -> DerivedView:
        """Takes letters away whose records have got their columns since: such a row is in another file than before."""
        had = self._looked.get(derived.row.table_id, frozenset())
        paths = frozenset(file.path for file in view.files)
        if not derived.view.files:
            self._looked[derived.row.table_id] = paths
            return derived
        changed = await self._letters.resolved(view, derived.view, derived.shape, paths - had)
        if not changed.is_empty:
            done = await self._state.apply(derived.view, derived.shape, changed)
            derived = await commit_changed(self._lake, self._tables, derived, done, derived.view.frontier)
        self._looked[derived.row.table_id] = paths
        return derived

    async def _make(self, view: View, step: Stretch, shape: DerivedShape) -> Made:
        having = "_value" if shape.recipe.kind == "dlq" else None
        tables = await self._rows.read(view, step, self._maker.columns(shape, view.shape), having)
        return await self._maker.make(tables, shape, view.shape)

    async def _put_away(
        self, rows: Sequence[DerivedRow], living: dict[UUID, Topic], failures: list[tuple[str, LakestreamError]]
    ) -> list[str]:
        """The tables of topics that are no more, or that do not ask for them any more. `rows` were read before the
        topics: no id is ever listed again, and one is listed before it has a row."""
        names = []
        for row in rows:
            topic = living.get(row.topic_id)
            if topic is not None and may_stay(row, topic.options):
                continue
            if topic is None and await self._topics.by_ids([row.topic_id]):
                continue
            try:
                name = await self._tables.put_away(row)
            except LakestreamError as error:
                failures.append((str(row.topic_id) if topic is None else topic.name, error))
                continue
            self._seen.pop(row.table_id, None)
            if name is not None:
                names.append(name)
        return names

    async def _leased(self, topic_id: UUID) -> bool:
        if not self._respect_leases:
            return True
        address = Address(f"worker/{topic_id.hex}", "deriving")
        lease = await self._lake.store.acquire_lease(address, self._name, ttl_ms=self._lake.settings.lease_ms)
        return lease.holder == self._name


def _shape(topic: Topic, recipe: Recipe, view: View) -> DerivedShape:
    try:
        return derived_shape(recipe, view.shape)
    except ValueError as error:
        raise StorageError(f"topic {topic.name} cannot have a table of latest rows: {error}") from error


def _state(view: View, derived: DerivedView) -> tuple[str, str, str]:
    return view.table, view.metadata_location, derived.view.metadata_location


def _is_ahead(frontier: Sequence[int], stream: Sequence[int]) -> bool:
    return len(frontier) > len(stream) or any(own > theirs for own, theirs in zip(frontier, stream, strict=False))


def _farther(frontier: tuple[int, ...], known: _Unkept | None) -> tuple[int, ...]:
    """Between what is written down and what is known nothing is for the table."""
    if known is None:
        return frontier
    return tuple(max(pair) for pair in zip_longest(frontier, known.frontier, fillvalue=0))


def _lag(frontier: Sequence[int], stream: Sequence[int]) -> int:
    own = (*frontier, *(0 for _ in range(len(stream) - len(frontier))))
    return sum(max(0, theirs - mine) for mine, theirs in zip(own, stream, strict=False))


def _row_count(view: View) -> int:
    return sum(file.record_count for file in view.files) - sum(delete.record_count for delete in view.deletes)
