"""One worker's ticks: all topics with something due, in one run of tiles. Which ones to look at the change feed says.

A topic that fails is reported and quarantined, longer each time; the others go on. State kept here is advice only
(who to leave alone, which tables exist): a worker that starts anew loses nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeVar
from uuid import UUID

from lakestream.errors import CorruptObject, LakestreamError, RegistryUnavailable
from lakestream.frontier.isolation import isolated
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.advance import DueTail, advance, commit, discard, ensure_table, plan_tail, read_tail
from lakestream.frontier.moving.evolving import ROUNDS_MOST, learn
from lakestream.frontier.moving.schedule import CommitSchedule, still_waits
from lakestream.frontier.moving.stable import Waits
from lakestream.frontier.moving.tiles.plan import Plan, tile_bytes
from lakestream.frontier.moving.tiles.tile import TileOutcome, kinds_of
from lakestream.frontier.moving.watchlist import Watchlist
from lakestream.metadata.feed import Feed
from lakestream.metadata.log.head import Head
from lakestream.metadata.log.partition import decode_head, head_address
from lakestream.metadata.store import Address
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.schemas.growing import RAW_FORMAT
from lakestream.table.view import View

T = TypeVar("T")

_log = logging.getLogger(__name__)

_HEADS_AT_ONCE: Final = 5_000
_TABLES_AT_ONCE: Final = 200
_REFUSED_MS: Final = 2_000
"""Tables made, or found made, before a tick goes on: what waits in other topics does not wait for all of them."""


@dataclass(frozen=True, slots=True)
class Failure:
    topic: str
    error: LakestreamError
    retry_in_ms: int
    topic_id: UUID
    failures: int
    """In a row."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A table that a tick has brought on."""

    topic: str
    topic_id: UUID
    record_count: int
    wal_bytes: int
    kinds: tuple[int, ...] = ()
    """How many of the records keep their values in which way, by `_kind`, if the topic's are not raw."""


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick did. `topics`: of which something was to be moved. `more`: some topic has more waiting than a tick
    takes, or tables are to be made. `pace_ms`: when to look again, at the latest; 0 if nothing was looked at.
    `looked_at`: topics whose heads were read. `touched`: those that brokers told of since the last tick; None if all
    may have been."""

    topics: int = 0
    record_count: int = 0
    wal_bytes: int = 0
    tiles: int = 0
    failures: tuple[Failure, ...] = ()
    more: bool = False
    commits: tuple[Commit, ...] = ()
    pace_ms: int = 0
    looked_at: int = 0
    touched: frozenset[UUID] | None = None


@dataclass(slots=True)
class _Quarantined:
    topic: str
    failures: int
    since_ms: int
    wait_ms: int


@dataclass(slots=True)
class _Progress:
    """`looked_ms`: before the heads were read."""

    looked_ms: int
    failures: list[Failure] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)


class Worker:
    def __init__(
        self,
        lake: Lake,
        topics: Topics,
        *,
        name: str,
        respect_leases: bool = True,
        keeps_intervals: bool = True,
        feed: Feed | None = None,
    ) -> None:
        """`name` is the lease holder's: unique among the workers that run. Without leases nothing is wrong, only
        two workers may do the same work once. Without `keeps_intervals` everything is moved, whatever the commit
        interval of its topic. Without a feed every tick looks at every topic."""
        self._lake = lake
        self._topics = topics
        self._name = name
        self._respect_leases = respect_leases
        self._schedule = CommitSchedule(lake.store, lake.settings) if keeps_intervals else None
        self._watchlist = Watchlist(feed, sweep_ms=lake.settings.sweep_ms)
        self._listed: Sequence[Topic] | None = None
        self._pace_ms = 0
        self._tables: set[UUID] = set()
        self._tableless: dict[UUID, Topic] = {}
        """Topics without records that are still to get a table, in their order."""
        self._quarantined: dict[UUID, _Quarantined] = {}
        self._leases: dict[UUID, int] = {}
        self._waits = Waits()
        self._unlearned: dict[UUID, int] = {}
        """Topics that wait for their schemas, and since when."""

    @property
    def failing(self) -> tuple[str, ...]:
        """The topics whose last try failed."""
        return tuple(sorted(each.topic for each in self._quarantined.values()))

    @property
    def failing_ids(self) -> frozenset[UUID]:
        return frozenset(self._quarantined)

    async def tick(self) -> Tick:
        """Moves what is due now. Errors of one topic are in the result; those of the topic list are raised."""
        progress = _Progress(self._lake.runtime.clock.now_ms())
        self._relist(await self._topics.list())
        look = await self._watchlist.look(progress.looked_ms)
        if self._schedule:
            for topic_id in look.woken:
                self._schedule.restart(topic_id, look.caught_up_ms)
        topics = [topic for topic in look.topics if not self._is_quarantined(topic)]
        heads = await self._read_heads(topics, progress)
        are_tables_left = await self._ensure_tables(topics, heads, progress)
        tails = await self._read_tails(topics, heads, progress)
        planned = self._plan(tails, progress)
        planned, outcomes = await self._learned(planned, await self._run(planned, progress), progress)
        await asyncio.gather(
            *(
                self._guard(progress, tail.topic, self._finish(tail, plan, outcomes[tail.topic.topic_id], progress))
                for tail, plan in planned
                if tail.topic.topic_id in outcomes
            )
        )
        return Tick(
            topics=sum(bool(plan.ranges) for _, plan in planned),
            record_count=sum(done.record_count for done in progress.commits),
            wal_bytes=sum(tail.due_bytes for tail, _ in planned),
            tiles=sum(len(plan.tiles) for _, plan in planned),
            failures=tuple(progress.failures),
            more=are_tables_left or any(tail.more for tail, _ in planned),
            commits=tuple(progress.commits),
            pace_ms=self._pace_ms,
            looked_at=len(topics),
            touched=look.touched,
        )

    async def release(self) -> None:
        """Gives the leases up, so that another worker need not wait for them to expire."""
        held, self._leases = self._leases, {}
        for topic_id, token in held.items():
            await self._lake.store.release_lease(_lease(topic_id), token)

    async def _ensure_tables(
        self, topics: Sequence[Topic], heads: Mapping[UUID, Mapping[int, Head]], progress: _Progress
    ) -> bool:
        """Every topic is a table from its first moment, with rows or without; those that have records come first, the
        others wait in a line. True: some are left for the next tick."""
        missing = [topic for topic in topics if topic.topic_id not in self._tables and topic.topic_id in heads]
        behind = [topic for topic in missing if not _is_caught_up(heads[topic.topic_id])]
        self._tableless |= {topic.topic_id: topic for topic in missing}
        for topic in (*behind, *islice(self._tableless.values(), _TABLES_AT_ONCE)):
            if topic.topic_id in self._tableless:
                await self._guard(progress, topic, self._ensure_table(topic))
        return bool(self._tableless)

    async def _ensure_table(self, topic: Topic) -> None:
        del self._tableless[topic.topic_id]
        await ensure_table(self._lake, self._topics, topic)
        self._tables.add(topic.topic_id)

    async def _read_tails(
        self, topics: Sequence[Topic], heads: Mapping[UUID, Mapping[int, Head]], progress: _Progress
    ) -> list[DueTail]:
        behind: list[Topic] = []
        for topic in topics:
            topic_id, found_heads = topic.topic_id, heads.get(topic.topic_id)
            has_table = topic_id in self._tables
            if found_heads is not None and _is_caught_up(found_heads) and (has_table or topic_id in self._tableless):
                self._watchlist.found_caught_up(topic_id, progress.looked_ms)
                if self._schedule:
                    self._schedule.restart(topic_id, progress.looked_ms)
                continue
            self._watchlist.keep(topic_id)
            if found_heads is not None and has_table:
                behind.append(topic)
        if self._schedule:
            behind = [
                topic
                for topic in behind
                if await self._guard(progress, topic, self._is_due(topic, heads[topic.topic_id], progress))
            ]
        ours = [topic for topic in behind if await self._leased(topic)]
        found = await asyncio.gather(
            *(self._guard(progress, topic, self._read_tail(topic, heads[topic.topic_id], progress)) for topic in ours)
        )
        return [tail for tail in found if tail is not None]

    async def _read_tail(self, topic: Topic, heads: Mapping[int, Head], progress: _Progress) -> DueTail:
        tail = await read_tail(self._lake, topic, heads, self._waits.overdue(topic, progress.looked_ms))
        self._waits.note(topic, tail.stable, progress.looked_ms)
        return tail

    async def _is_due(self, topic: Topic, heads: Mapping[int, Head], progress: _Progress) -> bool:
        schedule = self._schedule
        return schedule is None or await schedule.is_due(topic, heads, now_ms=progress.looked_ms, pace_ms=self._pace_ms)

    async def _read_heads(self, topics: Sequence[Topic], progress: _Progress) -> Mapping[UUID, Mapping[int, Head]]:
        """In few round trips. A partition without head is being deleted: nothing of it is due. A topic of which a head
        is damaged is quarantined."""
        if not topics:
            return {}
        partitions = [partition for topic in topics for partition in topic.each_partition()]
        addresses = [head_address(partition) for partition in partitions]
        chunks = [addresses[at : at + _HEADS_AT_ONCE] for at in range(0, len(addresses), _HEADS_AT_ONCE)]
        entries = iter([entry for chunk in chunks for entry in await self._lake.store.get(chunk)])
        heads: dict[UUID, dict[int, Head]] = {}
        for topic in topics:
            rows = [(partition, next(entries)) for partition in topic.each_partition()]
            try:
                found = [(partition.index, decode_head(entry, partition)) for partition, entry in rows]
            except CorruptObject as error:
                self._quarantine(progress, topic, error)
                continue
            heads[topic.topic_id] = {index: present.head for index, present in found if present is not None}
        return heads

    async def _leased(self, topic: Topic) -> bool:
        if not self._respect_leases:
            return True
        ttl_ms = self._lake.settings.lease_ms
        lease = await self._lake.store.acquire_lease(_lease(topic.topic_id), self._name, ttl_ms=ttl_ms)
        if lease.holder != self._name:
            return False
        self._leases[topic.topic_id] = lease.token
        return True

    def _plan(self, tails: Sequence[DueTail], progress: _Progress) -> list[tuple[DueTail, Plan]]:
        size = tile_bytes(sum(tail.due_bytes for tail in tails), self._lake.runner.parallelism, self._lake.settings)
        planned = []
        for tail in tails:
            try:
                with isolated(tail.topic.name):
                    planned.append((tail, plan_tail(self._lake, tail, tile_size=size)))
            except LakestreamError as error:
                self._quarantine(progress, tail.topic, error)
        return planned

    async def _run(
        self, planned: Sequence[tuple[DueTail, Plan]], progress: _Progress
    ) -> Mapping[UUID, Sequence[TileOutcome]]:
        """All topics' tiles in one run. If that fails as a whole, each topic gets a run of its own: one that kills its
        worker must not take the others with it every time."""
        tiles = [tile for _, plan in planned for tile in plan.tiles]
        try:
            outcomes = iter(await self._lake.runner.run(tiles) if tiles else [])
        except LakestreamError as error:
            if len(planned) == 1:
                self._quarantine(progress, planned[0][0].topic, error)
                return {}
            alone = [await self._run([each], progress) for each in planned]
            return {topic_id: found for each in alone for topic_id, found in each.items()}
        return {tail.topic.topic_id: [next(outcomes) for _ in plan.tiles] for tail, plan in planned}

    async def _learned(
        self,
        planned: Sequence[tuple[DueTail, Plan]],
        outcomes: Mapping[UUID, Sequence[TileOutcome]],
        progress: _Progress,
    ) -> tuple[list[tuple[DueTail, Plan]], Mapping[UUID, Sequence[TileOutcome]]]:
        """What is to be committed once the tables know the schemas that their tiles did not. A topic whose schemas
        cannot be asked for now waits; not for ever: then its rows keep their bytes."""
        plans, done = {tail.topic.topic_id: (tail, plan) for tail, plan in planned}, dict(outcomes)
        asking = [*planned]
        for _ in range(ROUNDS_MOST):
            again: list[DueTail] = []
            for tail, plan in asking:
                found = done.get(tail.topic.topic_id, ())
                if any(outcome.has_unknown for outcome in found):
                    view = await self._guard(progress, tail.topic, self._learn(tail, plan, found))
                    if view is not tail.view:
                        await discard(self._lake, [file for outcome in found for file in outcome.files])
                        del done[tail.topic.topic_id]
                    if view is not None and view is not tail.view:
                        again.append(replace(tail, view=view))
            if not again:
                break
            asking = self._plan(again, progress)
            plans |= {tail.topic.topic_id: (tail, plan) for tail, plan in asking}
            done |= await self._run(asking, progress)
        return [*plans.values()], done

    async def _learn(self, tail: DueTail, planned: Plan, outcomes: Sequence[TileOutcome]) -> View:
        """The view to go on with: the tail's own if there is nothing to learn."""
        topic_id, now_ms = tail.topic.topic_id, self._lake.runtime.clock.now_ms()
        try:
            learned = await learn(self._lake, tail.topic, tail.view, planned, outcomes)
        except LakestreamError as error:
            since_ms = self._unlearned.setdefault(topic_id, now_ms)
            # A catalog that refuses columns will do so again: where it does not answer at all the commit fails, too.
            wait_ms = self._lake.settings.schema_wait_ms
            if now_ms - since_ms < (wait_ms if isinstance(error, RegistryUnavailable) else min(wait_ms, _REFUSED_MS)):
                raise
            _log.warning("topic %s: values stay bytes whose schemas cannot be columns now: %s", tail.topic.name, error)
            return tail.view
        self._unlearned.pop(topic_id, None)
        return learned or tail.view

    async def _finish(self, tail: DueTail, plan: Plan, outcomes: Sequence[TileOutcome], progress: _Progress) -> None:
        topic, view = tail.topic, tail.view
        if plan.ranges:
            moved = await commit(self._lake, tail, plan, outcomes)
            view = moved.view
            is_told = topic.options.value_format != RAW_FORMAT and not moved.superseded
            kinds = kinds_of(outcomes) if is_told else ()
            progress.commits.append(Commit(topic.name, topic.topic_id, moved.record_count, tail.due_bytes, kinds))
        await advance(self._lake, tail, view)
        self._quarantined.pop(topic.topic_id, None)
        if self._schedule and not tail.more and not tail.stable.waiting:
            self._schedule.restart(topic.topic_id, progress.looked_ms)

    async def _guard(self, progress: _Progress, topic: Topic, work: Awaitable[T]) -> T | None:
        try:
            with isolated(topic.name):
                return await work
        except LakestreamError as error:
            self._quarantine(progress, topic, error)
            return None

    def _relist(self, listed: Sequence[Topic]) -> None:
        """Nothing here goes through all topics while the list is the same."""
        if listed is self._listed:
            return
        self._listed = listed
        self._pace_ms = self._schedule.pace_ms(listed) if self._schedule else self._lake.settings.interval_ms
        self._watchlist.relist(listed)
        present = {topic.topic_id for topic in listed}
        self._tables &= present
        self._tableless = {topic_id: topic for topic_id, topic in self._tableless.items() if topic_id in present}
        if self._schedule:
            self._schedule.forget(present)
        self._unlearned = {topic_id: since for topic_id, since in self._unlearned.items() if topic_id in present}
        self._waits.forget(present)
        for topic_id in self._quarantined.keys() - present:
            del self._quarantined[topic_id]
        for topic_id in self._leases.keys() - present:
            del self._leases[topic_id]

    def _is_quarantined(self, topic: Topic) -> bool:
        found = self._quarantined.get(topic.topic_id)
        return found is not None and still_waits(self._lake.runtime.clock.now_ms(), found.since_ms, found.wait_ms)

    def _quarantine(self, progress: _Progress, topic: Topic, error: LakestreamError) -> None:
        """What is believed of the topic is forgotten: the next try looks again."""
        settings = self._lake.settings
        self._tables.discard(topic.topic_id)
        self._watchlist.keep(topic.topic_id)
        now_ms = self._lake.runtime.clock.now_ms()
        failures = self._quarantined[topic.topic_id].failures + 1 if topic.topic_id in self._quarantined else 1
        wait_ms = min(settings.max_backoff_ms, settings.backoff_ms << min(failures - 1, 20))
        self._quarantined[topic.topic_id] = _Quarantined(topic.name, failures, now_ms, wait_ms)
        progress.failures.append(Failure(topic.name, error, wait_ms, topic.topic_id, failures))


def _is_caught_up(heads: Mapping[int, Head]) -> bool:
    return all(head.frontier >= head.next_offset for head in heads.values())


def _lease(topic_id: UUID) -> Address:
    return Address(f"worker/{topic_id.hex}", "worker")
