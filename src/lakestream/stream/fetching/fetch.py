"""Fetching: below the view's frontier from the table's files, above it from WAL extents, and both from memory where the
bytes are there and, below the frontier, the view says that nobody has changed those rows.

A reader of committed records gets nothing beyond the last stable offset, and with the bytes the transactions in them
that were aborted; the table has committed records only. So memory below the frontier, where markers may be gone, serves
no transactional batches.

The view routes every read. Absence is a gap only below the view's frontier; above it a missing
extent or object means that the view is old, and if a fresh view does not help, storage is broken:
an alarm, never a skip.
"""

import asyncio
import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lakestream.errors import CorruptObject, LakestreamError, ObjectMissing, OffsetOutOfRange, StorageError, Unavailable
from lakestream.metadata.log.head import Extent, last_stable_offset
from lakestream.metadata.log.partition import head_address
from lakestream.metadata.log.transactions import AbortedRange
from lakestream.metadata.store import Store
from lakestream.metadata.topics.list import Topics
from lakestream.model import StreamPartition
from lakestream.objects.store import Buffer
from lakestream.records import BatchCompression, BatchInfo, control_batch
from lakestream.runtime.read_ahead import ReadAhead
from lakestream.stream.fetching.cache import ExtentBytes, ExtentCache
from lakestream.stream.fetching.tails import Tail, Tails
from lakestream.stream.fetching.views import ViewCache, frontier_of, intact_from
from lakestream.table import History, HistorySource
from lakestream.table.view import View

log = logging.getLogger(__name__)

_ROUTES_TRIED = 4
_AHEAD_BYTES: Final = 32 * 1024 * 1024
_AHEAD_EXTENTS: Final = 32
"""What is read of the WAL before its readers ask: of all partitions together, and of one."""
HEAD_CHECK_S: Final = 1.0
"""For so long a broker may serve records that another has deleted."""


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """`compression`: of what comes from the table; None: as it is. The tail is served as it was kept. `committed`:
    nothing beyond the last stable offset, and what was aborted is named."""

    partition: StreamPartition
    offset: int
    max_bytes: int
    compression: BatchCompression | None = None
    committed: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """`parts` joined are whole record batches; the first may begin before the offset asked for."""

    partition: StreamPartition
    parts: list[Buffer] = field(default_factory=list)
    high_watermark: int = -1
    log_start: int = -1
    error: LakestreamError | None = None
    is_left_out: bool = False
    """There are records, for which there is no room in this answer or in memory."""
    last_stable_offset: int = -1
    aborted: Sequence[AbortedRange] = ()
    """With records among the parts; for readers of committed records only."""

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.parts))


class _Served(NamedTuple):
    parts: list[Buffer]
    aborted: Sequence[AbortedRange] = ()


class Fetcher:
    def __init__(
        self, store: Store, tails: Tails, cache: ExtentCache, views: ViewCache, history: HistorySource, topics: Topics
    ) -> None:
        self._store = store
        self._tails = tails
        self._cache = cache
        self._views = views
        self._history = history
        self._topics = topics
        self._ahead: ReadAhead[ExtentBytes] = ReadAhead(min(_AHEAD_BYTES, cache.limit_bytes // 4))

    async def fetch(
        self, requests: Sequence[FetchPartition], *, min_bytes: int, max_bytes: int, max_wait_ms: int
    ) -> list[Fetched]:
        """Answers once `min_bytes` are there, something is wrong, or time is out."""
        deadline_s = asyncio.get_running_loop().time() + max_wait_ms / 1000
        while True:
            results = await self._collect(requests, max_bytes)
            missing_bytes = min(min_bytes, max_bytes) - sum(result.size_bytes for result in results)
            if missing_bytes <= 0 or any(result.error or result.is_left_out for result in results):
                return results
            if not await self._grown(requests, missing_bytes, deadline_s):
                return results

    async def _grown(self, requests: Sequence[FetchPartition], missing_bytes: int, deadline_s: float) -> bool:
        """Waits until a new pass is worth its reads: so many bytes were appended, time is out after fewer, or an offset
        asked for is no longer where it was. What is appended meanwhile is counted by its extents and not read.
        False: time is out, and the last pass still holds."""
        partitions = [request.partition for request in requests]
        loop = asyncio.get_running_loop()
        appended_bytes = 0
        try:
            ends = {request.partition: _end_of(self._tails.get(request.partition), request) for request in requests}
            while appended_bytes < missing_bytes:
                seen = {head_address(partition): self._tails.get(partition).version for partition in partitions}
                remaining_ms = round((deadline_s - loop.time()) * 1000)
                if remaining_ms <= 0 or not await self._store.watch(seen, timeout_ms=remaining_ms):
                    return appended_bytes > 0
                # Else the versions seen stay behind the store's, and the watch returns at once for ever.
                await self._tails.refresh(partitions)
                for request in requests:
                    tail, end = self._tails.get(request.partition), ends[request.partition]
                    _check_range(request, tail)
                    extents, now = tail.extents_from(end), _end_of(tail, request)
                    if now > end and (not extents or extents[0].base_offset > end):
                        return True  # a frontier has passed what was appended: the table has it
                    if request.committed:
                        extents = [extent for extent in extents if extent.base_offset < now] if now > end else ()
                    appended_bytes += sum(extent.length for extent in extents)
                    end = extents[-1].end_offset if extents else end
                    ends[request.partition] = min(end, now) if request.committed else end
        except LakestreamError:
            return True  # gone, damaged or out of range: the next pass tells
        return True

    async def _collect(self, requests: Sequence[FetchPartition], max_bytes: int) -> list[Fetched]:
        """One pass in the order asked for. Whatever may be at the end is read linearizably first."""
        stale = [request.partition for request in requests if self._is_stale(request)]
        if stale:
            await self._tails.refresh(stale)
        results = []
        left_bytes = max_bytes
        empty = True
        for request in requests:
            try:
                fetched = await self._read(request, min(left_bytes, request.max_bytes), at_least_one=empty)
            except LakestreamError as error:
                if isinstance(error, StorageError):
                    log.error("cannot serve %s at %d: %s", request.partition, request.offset, error)
                fetched = Fetched(request.partition, error=error)
            left_bytes = max(0, left_bytes - fetched.size_bytes)
            empty = empty and not fetched.parts
            results.append(fetched)
        return results

    def _is_stale(self, request: FetchPartition) -> bool:
        """Also a head that was not looked at for a while: the log start may have passed the offset."""
        if not self._tails.knows(request.partition):
            return True
        tail = self._tails.get(request.partition)
        age_s = asyncio.get_running_loop().time() - tail.checked_at_s
        return age_s > HEAD_CHECK_S or not tail.head.log_start <= request.offset < _end_of(tail, request)

    async def _read(self, request: FetchPartition, budget_bytes: int, *, at_least_one: bool) -> Fetched:
        partition = request.partition
        trouble: StorageError | None = None
        view: View | None = None
        for attempt in range(_ROUTES_TRIED):
            if attempt:
                # The head first, then the view: a fresh view can then not be behind the head that was read.
                await self._tails.refresh([partition])
            tail = self._tails.get(partition)
            _check_range(request, tail)
            served: _Served | None = _Served([])
            left_out = False
            if request.offset < _end_of(tail, request) and (budget_bytes > 0 or at_least_one):
                view = await self._views.current(partition.topic_id, reload=attempt > 0)
                try:
                    served = await self._route(view, tail, request, budget_bytes, at_least_one=at_least_one)
                    left_out = served is not None and not served.parts
                except ObjectMissing as error:
                    trouble, served = error, None
            if served is not None:
                if request.offset < frontier_of(view, partition.index):
                    tail = await self._after_the_view(request, tail)
                return Fetched(
                    partition,
                    served.parts,
                    tail.end_offset,
                    tail.head.log_start,
                    is_left_out=left_out,
                    last_stable_offset=tail.stable_offset if request.committed else last_stable_offset(tail.head),
                    aborted=served.aborted,
                )
        if trouble is not None and await self._views.current(partition.topic_id, reload=True) != view:
            raise Unavailable(f"{view.table if view else 'the table'} changes faster than it is read: fetch again")
        raise trouble or StorageError(
            f"offset {request.offset} of {partition.topic_id}-{partition.index} is neither in the table nor in the WAL"
        )

    async def _after_the_view(self, request: FetchPartition, tail: Tail) -> Tail:
        """The head as it was once the view had been loaded, or later. Rows may have left the table since an older one
        was read: the log start passed them first, so that nobody takes what retention took for a gap."""
        partition = request.partition
        if tail.checked_at_s <= self._views.loaded_at_s(partition.topic_id):
            await self._tails.refresh([partition])
            tail = self._tails.get(partition)
        # In any case: others' looks change what this broker knows.
        _check_range(request, tail)
        return tail

    async def _route(
        self, view: View | None, tail: Tail, request: FetchPartition, budget_bytes: int, *, at_least_one: bool
    ) -> _Served | None:
        """None: the view is too old for this offset."""
        frontier = frontier_of(view, request.partition.index)
        offset = request.offset
        if view is not None and offset < frontier:
            recent = self._read_recent(view, request, budget_bytes, at_least_one=at_least_one)
            if recent:
                return _Served(recent)
            history = await self._read_table(view, request, frontier, max(budget_bytes, 1), spare=not at_least_one)
            if history.parts:
                return _Served(self._within(list(history.parts), budget_bytes, at_least_one=at_least_one))
            if history.next_offset == offset:
                return _Served([])
            if frontier >= _end_of(tail, request):
                return _Served([control_batch(offset, frontier - 1)])
            offset = frontier
        tail.trim(frontier)
        return await self.read_extents(tail, request, offset, budget_bytes, at_least_one=at_least_one)

    async def _read_table(
        self, view: View, request: FetchPartition, frontier: int, max_bytes: int, *, spare: bool
    ) -> History:
        """Records that an engine has changed are an error, unless the topic's owner takes them for its records."""
        partition = request.partition

        async def read(*, changed: bool) -> History:
            return await self._history.read(
                view,
                partition=partition.index,
                offset=request.offset,
                end_offset=frontier,
                max_bytes=max_bytes,
                changed=changed,
                compression=request.compression,
                spare=spare,
            )

        try:
            return await read(changed=False)
        except CorruptObject as error:
            topic = (await self._topics.by_ids([partition.topic_id])).get(partition.topic_id)
            if topic is None or topic.options.table_updates != "record":
                raise
            served = await read(changed=True)
            log.warning("topic %s serves changed records (lakestream.table.updates=record): %s", topic.name, error)
            return served

    async def read_extents(
        self, tail: Tail, request: FetchPartition, offset: int, budget_bytes: int, *, at_least_one: bool
    ) -> _Served | None:
        partition = request.partition
        extents = list(tail.extents_from(offset))
        if not extents or extents[0].base_offset > offset:
            return None
        # Extents and markers of one moment: while bytes are read others may let go of either.
        aborted = tail.aborted_from(offset) if request.committed else ()
        end = extents[-1].end_offset
        if request.committed and tail.stable_offset < end:
            end = tail.stable_offset
            extents = [extent for extent in extents if extent.base_offset < end]
        if self._ahead.follows(partition, offset):
            self._read_ahead(partition, extents[1:])
        taken = _Taken(budget_bytes, at_least_one=at_least_one)
        for extent in extents:
            found = await self._cache.read(partition, extent)
            self._ahead.came((partition, extent.base_offset), found)
            if not taken.take(found, offset, end):
                break
        if taken.parts:
            self._ahead.ended(partition, taken.next_offset)
        return _Served(taken.parts, [each for each in aborted if each.first_offset < taken.next_offset])

    def _read_ahead(self, partition: StreamPartition, extents: Sequence[Extent]) -> None:
        """Side by side, those that follow: for this answer, and for the next."""
        for extent in extents[:_AHEAD_EXTENTS]:
            key = partition, extent.base_offset
            if not self._cache.holds(*key):
                self._ahead.begin(key, extent.length, functools.partial(self._cache.read, partition, extent))

    def _read_recent(
        self, view: View, request: FetchPartition, budget_bytes: int, *, at_least_one: bool
    ) -> list[Buffer]:
        """What is in memory of the rows that the table has. Empty: the table is to be read."""
        partition, offset = request.partition, request.offset
        taken = _Taken(budget_bytes, at_least_one=at_least_one)
        if offset >= intact_from(view, partition.index):
            while offset < frontier_of(view, partition.index):
                found = self._cache.find(partition, offset)
                if found is None or found.is_transactional or not taken.take(found, offset, found.end_offset):
                    break
                offset = found.end_offset
        return taken.parts

    @staticmethod
    def _within(parts: list[Buffer], budget_bytes: int, *, at_least_one: bool) -> list[Buffer]:
        """Table batches are cut to the budget by the reader but for the first, which may be the one too many."""
        return parts if at_least_one or len(parts[0]) <= budget_bytes else []


def _end_of(tail: Tail, request: FetchPartition) -> int:
    """What the reader gets ends there."""
    return tail.stable_offset if request.committed else tail.end_offset


def _check_range(request: FetchPartition, tail: Tail) -> None:
    if not tail.head.log_start <= request.offset <= tail.end_offset:
        raise OffsetOutOfRange(
            f"offset {request.offset} is outside [{tail.head.log_start}, {tail.end_offset}]: seek into it"
        )


class _Taken:
    """Whole batches up to a budget, of which the first may be larger if there has to be one."""

    def __init__(self, budget_bytes: int, *, at_least_one: bool) -> None:
        self.parts: list[Buffer] = []
        self.next_offset = -1
        """What comes after the parts."""
        self._left_bytes = budget_bytes
        self._at_least_one = at_least_one

    def take(self, extent: ExtentBytes, offset: int, stop: int) -> bool:
        """From the batch that holds the offset on, up to that which begins at `stop`. False: nothing more fits in."""
        start = extent.position_of(offset)
        end = len(extent.data) if stop >= extent.end_offset else extent.position_of(stop)
        if end - start > self._left_bytes:
            needs_one = self._at_least_one and not self.parts
            end = _whole_batches(extent.batches, start, self._left_bytes, at_least_one=needs_one)
        if end > start:
            self.parts.append(extent.data[start:end])
            self.next_offset = extent.offset_at(end)
            self._left_bytes -= end - start
        return end == len(extent.data) and self._left_bytes > 0


def _whole_batches(batches: Sequence[BatchInfo], start: int, budget_bytes: int, *, at_least_one: bool) -> int:
    """The end of the last whole batch within the budget, counted from `start`."""
    end = start
    for batch in batches:
        if batch.position < start:
            continue
        if batch.position + batch.length - start > budget_bytes and not (at_least_one and end == start):
            break
        end = batch.position + batch.length
    return end
