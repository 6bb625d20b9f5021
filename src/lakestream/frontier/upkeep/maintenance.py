"""The upkeep of tables, in bounded passes: retention, compaction, merges of small files, statistics.

Everything here may be stopped at any point and done again, by anybody, beside the pipeline's commits and other engines'
rewrites: log starts never fall, and a file takes the place of others by one commit on exactly one view, or not at all.
State kept here is advice only. Snapshots are expired and manifests merged by the commits themselves; dead files
are the collectors' (`collector`, `orphans`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lakestream.errors import LakestreamError, UnknownStream
from lakestream.frontier.derived.waiting import seen
from lakestream.frontier.isolation import isolated
from lakestream.frontier.lake import Lake
from lakestream.frontier.upkeep.compaction import fold, folded_ms, plan_fold
from lakestream.frontier.upkeep.merging import Run, is_elsewhere, plan_merges
from lakestream.frontier.upkeep.retention import MAX_LEARNT_FILES, Retirement, is_wanted, plan_retirement, retire
from lakestream.frontier.upkeep.rewrite import is_inside, put_in_place
from lakestream.frontier.upkeep.statistics import count_keys, plan_count
from lakestream.metadata.store import Address
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.metadata.topics.options import UNLIMITED
from lakestream.model import DataFile
from lakestream.table.reading.shares import Shares
from lakestream.table.rewriting.distinct import NotText
from lakestream.table.rewriting.rewriter import Rewriter, Unmergeable
from lakestream.table.view import View

_KEPT_REFUSALS: Final = 10_000
_COUNT_KEYS: Final = "count keys"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was done, or would be. `files` and `rows` are those that go (into a merge, out of the table)."""

    topic: str
    action: str
    about: str
    files: int = 0
    rows: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Maintained:
    """What one pass did. `failures`: topic and error; those tables come round again."""

    steps: tuple[Step, ...] = ()
    failures: tuple[tuple[str, LakestreamError], ...] = ()


class Maintenance:
    def __init__(
        self,
        lake: Lake,
        topics: Topics,
        *,
        name: str,
        respect_leases: bool = True,
        shares: Shares | None = None,
        rewriter: Rewriter | None = None,
    ) -> None:
        """`name` is the lease holder's. Without leases nothing is wrong, only work may be done twice and thrown
        away. `shares` and `rewriter` read and write the files; by default Parquet in the lake's bucket."""
        self._lake = lake
        self._topics = topics
        self._name = name
        self._respect_leases = respect_leases
        self._shares = shares or Shares(lake.objects)
        self._rewriter = rewriter or Rewriter(lake.objects, max_bytes=lake.settings.max_rewrite_bytes)
        self._after = ""
        self._moved: dict[UUID, None] = {}
        """Tables with something new, which do not wait for their turn."""
        self._tidy: dict[UUID, str] = {}
        """Tables as they were when nothing was left to merge."""
        self._refused: dict[frozenset[str], None] = {}
        self._uncounted: dict[UUID, tuple[int, ...]] = {}
        """Tables, up to a frontier, that have keys of which there can be no sketch."""

    def moved(self, topic_ids: Iterable[UUID]) -> None:
        """Their tables have new files."""
        self._moved |= dict.fromkeys(topic_ids)

    async def run(self) -> Maintained:
        """One pass over a bounded number of tables: of those that have moved, and of all in turn, for what waits for
        time to pass. Errors of one topic are in the result; those of the topic list are raised."""
        steps: list[Step] = []
        failures: list[tuple[str, LakestreamError]] = []
        listed = await self._topics.list()
        for topic_id in {*self._tidy, *self._uncounted} - {topic.topic_id for topic in listed}:
            self._tidy.pop(topic_id, None)
            self._uncounted.pop(topic_id, None)
        most = self._lake.settings.max_maintain_tables
        start = bisect_right(listed, self._after, key=lambda topic: topic.name)
        turn = [*listed[start : start + most], *listed[: max(0, min(start, start + most - len(listed)))]]
        for topic in self._first(listed, turn):
            await self._maintain(topic, steps, failures)
        for topic in turn:
            self._after = topic.name
            await self._maintain(topic, steps, failures)
        return Maintained(tuple(steps), tuple(failures))

    async def _maintain(self, topic: Topic, steps: list[Step], failures: list[tuple[str, LakestreamError]]) -> None:
        try:
            with isolated(topic.name):
                done = await self.maintain(topic) if await self._leased(topic.topic_id) else []
        except UnknownStream:
            return
        except LakestreamError as error:
            failures.append((topic.name, error))
            return
        steps += done
        if done:
            # There may be more to do than one pass does.
            self._moved[topic.topic_id] = None

    def _first(self, listed: Sequence[Topic], turn: Sequence[Topic]) -> list[Topic]:
        """Those that have moved and whose turn it is not, as many as a pass takes."""
        for topic in turn:
            self._moved.pop(topic.topic_id, None)
        if not self._moved:
            return []
        by_id = {topic.topic_id: topic for topic in listed}
        self._moved = {topic_id: None for topic_id in self._moved if topic_id in by_id}
        first = list(self._moved)[: self._lake.settings.max_maintain_tables]
        for topic_id in first:
            del self._moved[topic_id]
        return [by_id[topic_id] for topic_id in first]

    async def maintain(self, topic: Topic, *, dry_run: bool = False) -> list[Step]:
        """What one pass does for a topic. `dry_run`: what it would do, as things are now."""
        steps = await self._retire(topic, dry_run)
        if topic.options.compacts:
            steps += await self._fold(topic, dry_run)
        steps += await self._merge(topic, dry_run)
        return steps + await self._count(topic, dry_run)

    async def _retire(self, topic: Topic, dry_run: bool) -> list[Step]:
        if not is_wanted(topic.options):
            return []
        planned = await plan_retirement(self._lake, self._shares, topic)
        if not dry_run:
            done = await retire(self._lake, topic, planned)
            planned = Retirement(planned.log_starts if done.partitions else {}, planned.drop if done.files else ())
        starts = sorted(planned.log_starts.items())
        steps = [Step(topic.name, "move log start", f"partition {index} to {start}") for index, start in starts]
        if planned.drop:
            age = f"older than {topic.options.table_retention_ms} ms"
            files = planned.drop
            steps.append(Step(topic.name, "drop rows", age, len(files), rows_of(files), bytes_of(files)))
        return steps

    async def _fold(self, topic: Topic, dry_run: bool) -> list[Step]:
        view = await self._lake.catalog.load(topic.topic_id)
        if not is_inside(self._lake, view):
            return []
        await self._shares.learn(view.files, MAX_LEARNT_FILES)
        by_file = {file.path: self._shares.of(file, len(view.frontier)) for file in view.files}
        planned = plan_fold(view, by_file, topic.options, await seen(self._lake.derived, topic.topic_id))
        if planned is None or _paths(planned.dirty) in self._refused:
            return []
        files, rows, size_bytes = len(planned.dirty), rows_of(planned.dirty), bytes_of(planned.dirty)
        about = f"of {rows} new rows"
        if not dry_run:
            done = await fold(self._lake, self._rewriter, view, planned, topic.options)
            if done.stuck:
                self._refuse(planned.dirty)
            if not done.swaps:
                return []
            about += f", {sum(each.rows_before - each.rows_after for each in done.swaps)} rows went"
        return [Step(topic.name, "fold keys", about, files, rows, size_bytes)]

    async def _merge(self, topic: Topic, dry_run: bool) -> list[Step]:
        """Of a topic that compacts only files whose keys were not folded yet: a fold merges the others."""
        if not topic.options.table_merges:
            return []
        view = await self._lake.catalog.load(topic.topic_id)
        if not is_inside(self._lake, view) or self._tidy.get(topic.topic_id) == view.metadata_location:
            return []
        steps: list[Step] = []
        files = [file for file in view.files if folded_ms(file) is None] if topic.options.compacts else view.files
        runs = plan_merges(files, self._lake.settings, view.layout, view.order)
        if not runs:
            self._tidy[topic.topic_id] = view.metadata_location
        for run in runs:
            if len(steps) >= self._lake.settings.max_rewrites:
                break
            if _paths(run) in self._refused:
                continue
            if dry_run:
                steps.append(_merge_step(topic, run, "about one"))
                continue
            merged = await self._merge_run(topic, view, run)
            if merged is not None:
                view = merged[0]
                steps.append(merged[1])
        return steps

    async def _merge_run(self, topic: Topic, view: View, run: Run) -> tuple[View, Step] | None:
        """Half of the run, and so on, if it is too much at once."""
        while len(run) > 1 or any(is_elsewhere(file, view.layout, view.order) for file in run):
            try:
                rewritten = await self._rewriter.rewrite(
                    run,
                    view.deletes,
                    shape=view.shape,
                    own_file_bytes=self._lake.settings.own_file_bytes,
                    compression=view.compression,
                    layout=view.layout,
                    order=view.order,
                )
            except Unmergeable:
                self._refuse(run)
                run = run[: len(run) // 2]
                continue
            done = await put_in_place(self._lake, view, run, rewritten)
            return None if done is None else (done.view, _merge_step(topic, run, str(done.files_after)))
        return None

    async def _count(self, topic: Topic, dry_run: bool) -> list[Step]:
        interval_ms = topic.options.table_statistics_interval_ms
        if interval_ms == UNLIMITED or not self._lake.catalog.keeps_statistics:
            return []
        view = await self._lake.catalog.load(topic.topic_id)
        # Keys that are no text do not become some: what came since is looked at, not what is known.
        if not is_inside(self._lake, view) or self._uncounted.get(topic.topic_id) == view.frontier:
            return []
        await self._shares.learn(view.files, MAX_LEARNT_FILES)
        planned = plan_count(view, self._shares, interval_ms, self._lake.runtime.clock.now_ms())
        if planned is None:
            return []
        size_bytes, new = bytes_of(planned.files), "all" if planned.known is None else "the new"
        if dry_run:
            about = f"in {new} rows of at most {len(planned.files)} files"
            return [Step(topic.name, _COUNT_KEYS, about, len(planned.files), rows_of(planned.files), size_bytes)]
        try:
            done = await count_keys(self._lake, self._rewriter, view, planned)
        except NotText as error:
            self._uncounted[topic.topic_id] = view.frontier
            return [Step(topic.name, _COUNT_KEYS, f"not done: {error}, and only such keys can be counted")]
        if done is None:
            return []
        return [Step(topic.name, _COUNT_KEYS, f"about {done.ndv}", done.files, done.row_count, size_bytes)]

    def _refuse(self, run: Run) -> None:
        self._refused[_paths(run)] = None
        if len(self._refused) > _KEPT_REFUSALS:
            del self._refused[next(iter(self._refused))]

    async def _leased(self, topic_id: UUID) -> bool:
        if not self._respect_leases:
            return True
        address = Address(f"worker/{topic_id.hex}", "maintenance")
        lease = await self._lake.store.acquire_lease(address, self._name, ttl_ms=self._lake.settings.lease_ms)
        return lease.holder == self._name


def _merge_step(topic: Topic, run: Run, into: str) -> Step:
    return Step(topic.name, "merge files", f"into {into}", len(run), rows_of(run), bytes_of(run))


def _paths(files: Iterable[DataFile]) -> frozenset[str]:
    return frozenset(file.path for file in files)


def rows_of(files: Iterable[DataFile]) -> int:
    return sum(file.record_count for file in files)


def bytes_of(files: Iterable[DataFile]) -> int:
    return sum(file.size_bytes for file in files)
