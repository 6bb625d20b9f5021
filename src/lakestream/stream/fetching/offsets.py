"""Finding offsets: the ends of a log, and the first record at or after a time.

Answered only from a head read linearizably: a stale answer would make a client jump.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from lakestream.errors import ObjectMissing, Unavailable
from lakestream.metadata.log.head import Extent, last_stable_offset
from lakestream.model import StreamPartition
from lakestream.records import Arena, Run, decode
from lakestream.runtime import Runtime
from lakestream.stream.fetching.cache import ExtentBytes, ExtentCache
from lakestream.stream.fetching.tails import Tails
from lakestream.stream.fetching.views import ViewCache, frontier_of
from lakestream.table import HistorySource
from lakestream.table.view import View

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
_VIEWS_TRIED: Final = 4


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """-1, -1: no record answers."""

    offset: int
    timestamp_ms: int


class OffsetFinder:
    def __init__(
        self, tails: Tails, cache: ExtentCache, views: ViewCache, history: HistorySource, runtime: Runtime
    ) -> None:
        self._tails = tails
        self._cache = cache
        self._views = views
        self._history = history
        self._runtime = runtime

    async def find(self, partition: StreamPartition, timestamp_ms: int, *, committed: bool = False) -> OffsetAt:
        """`committed`: as if the log ended at the last stable offset. `ObjectMissing` if the present view names a file
        that is gone, `Unavailable` if the table changes faster than it is read."""
        for _ in range(_VIEWS_TRIED):
            await self._tails.refresh([partition])
            tail = self._tails.get(partition)
            end_offset = last_stable_offset(tail.head) if committed else tail.end_offset
            if timestamp_ms == LATEST:
                return OffsetAt(end_offset, -1)
            if timestamp_ms == EARLIEST:
                return OffsetAt(tail.head.log_start, -1)
            extents = list(tail.extents)
            view = await self._views.current(partition.topic_id, reload=True)
            frontier = frontier_of(view, partition.index)
            extents = [extent for extent in extents if extent.end_offset > frontier]
            try:
                if timestamp_ms == MAX_TIMESTAMP:
                    found = await self._newest(partition, view, tail.head.log_start, frontier, extents)
                else:
                    start = tail.head.log_start
                    found = await self._first_at(partition, view, start, frontier, extents, timestamp_ms)
                return found if not committed or found.offset < end_offset else OffsetAt(-1, -1)
            except ObjectMissing as error:
                missing = error
        if await self._views.current(partition.topic_id, reload=True) != view:
            raise Unavailable(f"{view.table if view else 'the table'} changes faster than it is read: ask again")
        raise missing

    async def _first_at(
        self,
        partition: StreamPartition,
        view: View | None,
        log_start: int,
        frontier: int,
        extents: list[Extent],
        timestamp_ms: int,
    ) -> OffsetAt:
        if view is not None and log_start < frontier:
            found = await self._history.first_at_or_after(
                view,
                partition=partition.index,
                timestamp_ms=timestamp_ms,
                offset=log_start,
                end_offset=frontier,
            )
            if found is not None:
                return OffsetAt(*found)
        for extent in extents:
            if extent.max_timestamp_ms >= timestamp_ms:
                kept = await self._cache.read(partition, extent)
                found_here = await self._runtime.off_loop(
                    partial(_first_at, kept, max(frontier, log_start), timestamp_ms)
                )
                if found_here is not None:
                    return found_here
        return OffsetAt(-1, -1)

    async def _newest(
        self, partition: StreamPartition, view: View | None, log_start: int, frontier: int, extents: list[Extent]
    ) -> OffsetAt:
        newest = OffsetAt(-1, -1)
        if view is not None and log_start < frontier:
            found = await self._history.newest(view, partition=partition.index, end_offset=frontier, offset=log_start)
            newest = OffsetAt(*found) if found is not None else newest
        for extent in extents:
            if extent.max_timestamp_ms > newest.timestamp_ms:
                kept = await self._cache.read(partition, extent)
                newest = await self._runtime.off_loop(partial(_newest, kept, max(frontier, log_start), newest))
        return newest


def _first_at(kept: ExtentBytes, from_offset: int, timestamp_ms: int) -> OffsetAt | None:
    return next((found for found in _times(kept, from_offset) if found.timestamp_ms >= timestamp_ms), None)


def _newest(kept: ExtentBytes, from_offset: int, newest: OffsetAt) -> OffsetAt:
    return max((newest, *_times(kept, from_offset)), key=lambda found: found.timestamp_ms)


def _times(kept: ExtentBytes, from_offset: int) -> Iterator[OffsetAt]:
    """The records of an extent from an offset on, in order, each with its time."""
    arena = Arena(max(len(kept.data), 1024))
    for columns in decode([Run(0, kept.base_offset, kept.data)], arena):
        for offset, timestamp_ms in zip(columns.offset.tolist(), columns.timestamp_ms.tolist(), strict=True):
            if offset >= from_offset:
                yield OffsetAt(offset, timestamp_ms)
