"""Keeps the Delta logs of topics that ask for one.

Delta is a mirror, never a source: each commit is the difference between what Iceberg's main shows and what the Delta
log shows, so it does not matter who changed either, or where an earlier run stopped.

The log is read *before* the view. Whatever was mirrored by then came from a view at most as new as ours; whatever is
mirrored later makes our commit a `Conflict`. So a mirror that sleeps between its steps never puts Delta back.

While a table cannot be mirrored, the snapshot that Delta shows is held on the Iceberg side: no file that Delta still
names is deleted, however long it takes.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lakestream.catalog.files import version_of
from lakestream.catalog.port import TableViews
from lakestream.errors import Conflict, LakestreamError, UnknownStream
from lakestream.frontier.delta.difference import check_mirrorable, difference
from lakestream.frontier.delta.port import DeltaLog, MirroredTables, Shown
from lakestream.frontier.isolation import isolated
from lakestream.frontier.moving.schedule import still_waits
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.runtime import Runtime

DELTA: Final = "delta"
_AT_ONCE: Final = 500
"""Mirrors that one pass looks at beside those of tables that the pipeline has just brought on, all in turn."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What one pass did. `failures`: topic and error; their mirrors stay as they were, and come round again."""

    commits: int = 0
    failures: tuple[tuple[str, LakestreamError], ...] = ()


@dataclass(slots=True)
class _MirrorState:
    """Advice only. `metadata_location`: the metadata that Delta showed when last looked at."""

    location: str
    metadata_location: str | None = None
    failures: int = 0
    since_ms: int = 0
    wait_ms: int = 0


class Mirrors:
    def __init__(
        self,
        views: TableViews,
        tables: MirroredTables,
        log: DeltaLog,
        topics: Topics,
        runtime: Runtime,
        settings: PipelineSettings,
    ) -> None:
        self._views = views
        self._tables = tables
        self._log = log
        self._topics = topics
        self._runtime = runtime
        self._settings = settings
        self._known: dict[UUID, _MirrorState] = {}
        self._listed: Sequence[Topic] | None = None
        self._mirrored: Sequence[Topic] = ()
        self._next = 0

    async def mirror(self, moved: Collection[UUID] = ()) -> Mirrored:
        """One pass over the mirrored topics: those in `moved`, and a bounded number of all in turn. Errors of one are
        in the result; those of the topic list are raised."""
        self._relist(await self._topics.list())
        turn = self._mirrored[self._next : self._next + _AT_ONCE]
        self._next = self._next + _AT_ONCE if self._next + _AT_ONCE < len(self._mirrored) else 0
        topics = [*turn]
        if len(turn) < len(self._mirrored):
            topics += [topic for topic in self._mirrored if topic.topic_id in moved and topic not in turn]
        done = await asyncio.gather(*(self._guard(topic) for topic in topics))
        failures = tuple(
            (topic.name, found) for topic, found in zip(topics, done, strict=True) if isinstance(found, LakestreamError)
        )
        return Mirrored(sum(found is True for found in done), failures)

    def _relist(self, listed: Sequence[Topic]) -> None:
        if listed is self._listed:
            return
        self._listed = listed
        self._mirrored = [topic for topic in listed if DELTA in topic.options.table_formats]
        for topic_id in self._known.keys() - {topic.topic_id for topic in self._mirrored}:
            del self._known[topic_id]

    async def _guard(self, topic: Topic) -> bool | LakestreamError:
        """Whether something was committed, or why the mirror stays behind."""
        now_ms = self._runtime.clock.now_ms()
        known = self._known.get(topic.topic_id)
        if known is not None and still_waits(now_ms, known.since_ms, known.wait_ms):
            return False
        try:
            with isolated(topic.name):
                if known is None:
                    known = _MirrorState((await self._views.load(topic.topic_id)).location)
                    self._known[topic.topic_id] = known
                committed = await self._mirror(topic, known)
        except (UnknownStream, Conflict):
            # There is no table yet, or no more; or somebody else is mirroring: the next pass sees what is left.
            return False
        except LakestreamError as error:
            if known is not None:
                self._quarantine(known, now_ms)
            return error
        known.failures, known.wait_ms = 0, 0
        return committed

    async def _mirror(self, topic: Topic, known: _MirrorState) -> bool:
        pointer = await self._views.pointer(topic.topic_id)
        if pointer is None or pointer == known.metadata_location:
            return False
        shown = await self._log.read(known.location)
        # After the log, never before: see above.
        view = await self._views.load(topic.topic_id)
        if shown is None:
            check_mirrorable(view)
            await self._log.create(known.location, topic.name, await self._tables.columns(view))
            shown = await self._log.read(known.location)
            if shown is None:
                raise Conflict(f"the Delta log of topic {topic.name} was taken away while it was made")
            # The view is older than this look at the log.
            view = await self._views.load(topic.topic_id)
        if shown.metadata_version > version_of(view.metadata_location) >= 0:
            raise Conflict(f"the Delta log of topic {topic.name} is ahead of the view")
        try:
            with isolated(topic.name):
                step = difference(shown, view, await self._tables.columns(view), self._runtime.clock.now_ms())
                if step is not None:
                    await self._log.commit(known.location, shown, step)
        except Conflict:
            raise
        except LakestreamError:
            await self._hold(topic, shown)
            raise
        await self._tables.hold(topic.topic_id, None)
        known.metadata_location = view.metadata_location
        return step is not None

    async def _hold(self, topic: Topic, shown: Shown) -> None:
        if shown.snapshot_id >= 0:
            await self._tables.hold(topic.topic_id, shown.snapshot_id)

    def _quarantine(self, known: _MirrorState, now_ms: int) -> None:
        known.failures += 1
        known.since_ms = now_ms
        known.wait_ms = min(self._settings.max_backoff_ms, self._settings.backoff_ms << min(known.failures - 1, 20))
