"""A table brought up to date for the engine that is about to load it.

A *cut* is one commit on demand: heads are read, and what they say was acked is in the table when the cut is done. It is
the chain of `advance` without leases: the table commit is the fence, and whoever comes next finishes what a crash left.

For a freshness of F ms a load may use a cut that began less than F/2 before it, done or under way, less what cuts take;
otherwise it waits for one that begins after it, which all who wait share. So what was acked F before is in what
an engine gets, the commit and the engine's own polling included. A load never fails for want of freshness: it gets what
is there, and is told so. The log is told of a cut's commit behind the answer; the next cut waits for that.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final
from uuid import UUID

from lakestream.errors import Conflict, LakestreamError, UnknownStream
from lakestream.frontier.isolation import isolated
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.advance import DueTail, advance, commit, discard, ensure_table, plan_tail, read_tail
from lakestream.frontier.moving.evolving import ROUNDS_MOST, learn
from lakestream.frontier.moving.replacement import frontier_of
from lakestream.frontier.moving.stable import stable_end
from lakestream.frontier.moving.tiles.plan import Plan, tile_bytes
from lakestream.frontier.moving.tiles.tile import TileOutcome
from lakestream.frontier.settings import FreshSettings
from lakestream.metadata.log.head import Head
from lakestream.metadata.log.partition import decode_head, head_address
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.table.view import View

_log = logging.getLogger(__name__)

_ROUNDS_MOST: Final = 8
"""How often one cut is planned again because another worker was faster with a part of it."""


class Freshness(Enum):
    """What a load may be told of the table it gets."""

    FRESH = "fresh"
    OFF = "off"
    """The topic does not ask for any, or the table is no topic's."""
    COMMITTED = "committed"
    """All that was committed is in it. What is behind the beginning of an open transaction is not."""
    PARTIAL = "partial"
    """More was waiting than one cut takes: the rest comes with the pipeline, or with the next cut."""
    LATE = "late"
    """The cut took too long. It goes on."""
    FAILED = "failed"


@dataclass(slots=True)
class Counts:
    """Since the process began."""

    loads: int = 0
    reused: int = 0
    cuts: int = 0
    commits: int = 0
    records: int = 0
    commit_s: float = 0.0
    """In cuts that had something to commit."""
    wait_s: float = 0.0
    told: dict[Freshness, int] = field(default_factory=lambda: dict.fromkeys(Freshness, 0))

    def metrics(self) -> Mapping[str, float]:
        return {
            "lakestream_fresh_loads_total": self.loads,
            "lakestream_fresh_reused_total": self.reused,
            "lakestream_fresh_cuts_total": self.cuts,
            "lakestream_fresh_commits_total": self.commits,
            "lakestream_fresh_records_total": self.records,
            "lakestream_fresh_commit_seconds_total": self.commit_s,
            "lakestream_fresh_wait_seconds_total": self.wait_s,
            **{f"lakestream_fresh_{told.value}_total": number for told, number in self.told.items()},
        }


@dataclass(slots=True, eq=False)
class _Cut:
    """`began_s`: just before the heads were read; what was acked until then is in it. None: not begun."""

    task: "asyncio.Task[Freshness]"
    began_s: float | None = None

    def serves(self, arrived_s: float, young_s: float) -> bool:
        return self.began_s is None or arrived_s - self.began_s < young_s


@dataclass(slots=True)
class _Stream:
    """`last` is done; `running` is under way; `following` begins when it ends. State of this process, which another may
    know nothing of: the table says what is done."""

    last: _Cut | None = None
    running: _Cut | None = None
    following: _Cut | None = None
    advancing: "asyncio.Task[None] | None" = None
    took_s: float = 0.0
    """The last cut that had something to commit."""
    failures: int = 0
    retry_s: float = float("-inf")


class Freshener:
    """Its runner should cut tiles in this process: an engine waits for them."""

    def __init__(self, lake: Lake, topics: Topics, settings: FreshSettings) -> None:
        self._lake = lake
        self._topics = topics
        self._settings = settings
        self._streams: dict[UUID, _Stream] = {}
        self._made: set[UUID] = set()
        self.counts: Final = Counts()

    async def close(self) -> None:
        """Cuts under way are cut off, which is safe at any point."""
        streams = self._streams.values()
        tasks: set[asyncio.Task[Any]] = {
            cut.task for stream in streams for cut in (stream.running, stream.following) if cut is not None
        }
        tasks |= {stream.advancing for stream in streams if stream.advancing is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def make_missing(self) -> None:
        """The tables of topics that have none yet: an engine asks for a name that the catalog does not know. A failure
        is only logged: the engine will be told that there is no such table."""
        try:
            listed = await self._topics.list()
        except LakestreamError as error:
            _log.warning("whether a topic lacks its table cannot be told now: %s", error)
            return
        for topic in listed:
            if topic.topic_id not in self._made:
                try:
                    with isolated(topic.name):
                        await ensure_table(self._lake, self._topics, topic)
                except LakestreamError as error:
                    _log.warning("the table of topic %s could not be made: %s", topic.name, error)
                else:
                    self._made.add(topic.topic_id)
        self._made &= {topic.topic_id for topic in listed}

    async def freshen(self, topic_id: UUID) -> Freshness:
        """Returns when the topic's table is as fresh as the topic asks for, or cannot be."""
        arrived_s = _now_s()
        told = await self._freshen(topic_id, arrived_s)
        self.counts.loads += 1
        self.counts.wait_s += _now_s() - arrived_s
        self.counts.told[told] += 1
        return told

    async def cut(self, topic_id: UUID) -> Freshness:
        """What was acked until now is in the topic's table, whatever freshness the topic asks for, or cannot be."""
        arrived_s = _now_s()
        try:
            topic = (await self._topics.by_ids([topic_id])).get(topic_id)
        except LakestreamError as error:
            _log.warning("topic %s cannot be looked up, so its table stays as it is: %s", topic_id, error)
            return Freshness.FAILED
        if topic is None:
            return Freshness.OFF
        return await self._waited(self._streams.setdefault(topic_id, _Stream()), topic, arrived_s, young_s=0.0)

    async def ends(self, topic_id: UUID) -> tuple[int, ...] | None:
        """Where the topic's partitions end now. None: there is no such topic."""
        topic = (await self._topics.by_ids([topic_id])).get(topic_id)
        if topic is None:
            return None
        heads = await self.heads(topic)
        return tuple(heads[index].next_offset if index in heads else 0 for index in range(topic.partitions))

    async def _freshen(self, topic_id: UUID, arrived_s: float) -> Freshness:
        try:
            topic = (await self._topics.by_ids([topic_id])).get(topic_id)
            freshness_ms = topic.options.table_freshness_ms if topic is not None else -1
        except LakestreamError as error:
            _log.warning("topic %s cannot be looked up, so its table is loaded as it is: %s", topic_id, error)
            return Freshness.FAILED
        if topic is None:
            self._streams.pop(topic_id, None)
        if topic is None or freshness_ms < 0:
            return Freshness.OFF
        stream = self._streams.setdefault(topic_id, _Stream())
        return await self._waited(stream, topic, arrived_s, _young_s(freshness_ms / 1000, stream.took_s))

    async def _waited(self, stream: _Stream, topic: Topic, arrived_s: float, young_s: float) -> Freshness:
        cut = self._cut(stream, topic, arrived_s, young_s)
        if cut is None:
            return Freshness.FAILED
        timeout_s = arrived_s + self._settings.wait_ms / 1000 - _now_s()
        done, _ = await asyncio.wait({cut.task}, timeout=max(0.0, timeout_s))
        if not done:
            _log.warning("topic %s: its table is loaded as it is, bringing it up to date takes too long", topic.name)
            return Freshness.LATE
        return Freshness.FAILED if cut.task.cancelled() else cut.task.result()

    def _cut(self, stream: _Stream, topic: Topic, arrived_s: float, young_s: float) -> _Cut | None:
        """The cut to wait for. None: the last one failed, and it is too early to try again."""
        for known in (stream.last, stream.running, stream.following):
            if known is not None and known.serves(arrived_s, young_s):
                self.counts.reused += known is stream.last
                return known
        if stream.running is not None:
            stream.following = self._begin(stream, topic, after=stream.running)
            return stream.following
        if arrived_s < stream.retry_s:
            return None
        stream.running = self._begin(stream, topic, after=None)
        return stream.running

    def _begin(self, stream: _Stream, topic: Topic, after: _Cut | None) -> _Cut:
        async def work() -> Freshness:
            if after is not None:
                await asyncio.wait({after.task})
                stream.running, stream.following = cut, None
            try:
                return await self._try(stream, topic, cut)
            finally:
                stream.running = None

        cut = _Cut(asyncio.create_task(work(), name=f"fresh {topic.name}"))
        return cut

    async def _try(self, stream: _Stream, topic: Topic, cut: _Cut) -> Freshness:
        commits = self.counts.commits
        try:
            with isolated(topic.name):
                told = await self._commit(stream, topic, cut)
        except LakestreamError as error:
            stream.failures += 1
            wait_ms = min(self._settings.max_backoff_ms, self._settings.backoff_ms << min(stream.failures - 1, 20))
            stream.retry_s = _now_s() + wait_ms / 1000
            _log.warning(
                "topic %s: its table could not be brought up to date for an engine; the next try is in %d ms: %s",
                topic.name,
                wait_ms,
                error,
            )
            return Freshness.FAILED
        stream.failures, stream.last = 0, cut
        if self.counts.commits > commits and cut.began_s is not None:
            stream.took_s = _now_s() - cut.began_s
            self.counts.commit_s += stream.took_s
        return told

    async def _commit(self, stream: _Stream, topic: Topic, cut: _Cut) -> Freshness:
        self.counts.cuts += 1
        if stream.advancing is not None:
            await asyncio.wait({stream.advancing})
        cut.began_s = _now_s()
        # It may have grown since it was looked up; what a new partition had before the cut began is to be in it.
        present, heads = await asyncio.gather(self._topics.by_ids([topic.topic_id]), self.heads(topic))
        grown = present.get(topic.topic_id, topic)
        if grown.partitions > topic.partitions:
            topic, heads = grown, await self.heads(grown)
        wanted = {index: stable_end(head) for index, head in heads.items()}
        told = Freshness.FRESH
        if any(head.next_offset > wanted[index] for index, head in heads.items()):
            told = Freshness.COMMITTED
        rounds_left = ROUNDS_MOST
        for _ in range(_ROUNDS_MOST):
            if all(heads[index].frontier >= end for index, end in wanted.items()):
                return told
            try:
                tail = await read_tail(self._lake, topic, heads)
            except UnknownStream:
                await ensure_table(self._lake, self._topics, topic)
                tail = await read_tail(self._lake, topic, heads)
            view = tail.view
            size = tile_bytes(tail.due_bytes, 1, self._lake.settings)
            planned = plan_tail(self._lake, tail, tile_size=size)
            if planned.ranges:
                outcomes = await self._lake.runner.run(planned.tiles)
                if rounds_left and any(outcome.has_unknown for outcome in outcomes):
                    rounds_left -= 1
                    if await self._learned(tail, planned, outcomes):
                        continue
                moved = await commit(self._lake, tail, planned, outcomes, replace=False)
                view = moved.view
                self.counts.commits += not moved.superseded
                self.counts.records += moved.record_count
            stream.advancing = asyncio.create_task(self._advance(tail, view), name=f"advance {topic.name}")
            if all(frontier_of(view, index) >= end for index, end in wanted.items()):
                return told
            if tail.more:
                _log.warning("topic %s: more is waiting than an engine can wait for; the pipeline moves it", topic.name)
                return Freshness.PARTIAL
            if _has(view, tail.stable.ends):
                # What is left is of transactions that are not ended in all partitions, or that overlap such.
                return Freshness.COMMITTED
            await asyncio.wait({stream.advancing})
            heads = await self.heads(topic)
            wanted = {index: end for index, end in wanted.items() if index in heads}
        raise Conflict(f"others moved parts of topic {topic.name} {_ROUNDS_MOST} times while its tail was committed")

    async def _learned(self, tail: DueTail, planned: Plan, outcomes: Sequence[TileOutcome]) -> bool:
        """Whether the table knows more schemas now, so that the same is to be planned again. If they cannot be asked
        for the cut fails: how long to wait for them the pipeline decides."""
        try:
            learned = await learn(self._lake, tail.topic, tail.view, planned, outcomes)
        except LakestreamError:
            await discard(self._lake, [file for outcome in outcomes for file in outcome.files])
            raise
        if learned is not None:
            await discard(self._lake, [file for outcome in outcomes for file in outcome.files])
        return learned is not None

    async def _advance(self, tail: DueTail, view: View) -> None:
        """If it fails, whoever moves the topic next does it."""
        try:
            with isolated(tail.topic.name):
                await advance(self._lake, tail, view)
        except LakestreamError as error:
            _log.warning("topic %s: its log is not told yet what is in the table: %s", tail.topic.name, error)

    async def heads(self, topic: Topic) -> dict[int, Head]:
        """One round trip. A partition without head is being deleted."""
        partitions = topic.each_partition()
        entries = await self._lake.store.get([head_address(partition) for partition in partitions])
        found = [decode_head(entry, partition) for entry, partition in zip(entries, partitions, strict=True)]
        return {partition.index: at.head for partition, at in zip(partitions, found, strict=True) if at is not None}


def _has(view: View, ends: Mapping[int, int]) -> bool:
    return all(frontier_of(view, index) >= end for index, end in ends.items())


def _young_s(freshness_s: float, took_s: float) -> float:
    """How old a cut may be to be used again. The one that follows it must still be done in time, on a machine that is
    then as busy as it was, and an engine needs as long again twice: to ask, and to read."""
    return max(0.0, min(freshness_s / 2 - took_s, freshness_s - 5 * took_s))


def _now_s() -> float:
    """The event loop's clock, which never goes back."""
    return asyncio.get_running_loop().time()
