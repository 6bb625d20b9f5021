"""How members get records: what waits to be delivered again and what is new, of all partitions of a session, until
there is something or time is out."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from lakestream.coordination.shares.acquiring import wanted_from
from lakestream.coordination.shares.asking import AskedPartition, ShareOutcome, ShareReader
from lakestream.coordination.shares.beginning import first_offset
from lakestream.coordination.shares.model import AckOutcome, LocatedBatch, SharedRecords
from lakestream.coordination.shares.partition import refresh
from lakestream.coordination.shares.ranges import advanced, next_lapse_ms, released
from lakestream.coordination.shares.reading import located, parts_with
from lakestream.errors import Conflict, LakestreamError, OffsetOutOfRange
from lakestream.metadata.shares import ShareState
from lakestream.metadata.store import Address
from lakestream.stream import EARLIEST, LATEST, Fetched, FetchPartition
from lakestream.stream.engine import StreamEngine

_LEAST_BYTES: Final = 64 * 1024
_SPARE: Final = 1.5
"""More is read than so many records should have, for they are not all alike."""
_BUSY_S: Final = 0.5
"""After so long comes one more look, whoever reads there."""


class _Look(NamedTuple):
    """What one look has found. `watched`: what has to change before another is worth it, unless a lock lapses. `busy`:
    of a partition that another member is being given records of."""

    found: Sequence[SharedRecords]
    watched: Mapping[Address, int]
    lapse_ms: int | None
    busy: asyncio.Lock | None


class ShareFetcher:
    def __init__(self, engine: StreamEngine) -> None:
        self._engine = engine

    async def fetch(
        self, reader: ShareReader, wanted: Sequence[AskedPartition], max_wait_ms: int
    ) -> list[SharedRecords]:
        """Of the partitions of which there is something to say, errors among them."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + max_wait_ms / 1000
        is_fresh = False
        while True:
            look = await self._look(reader, wanted)
            left_s = deadline_s - loop.time()
            if look.found or any(each.acks for each in wanted) or (is_fresh and left_s <= 0):
                return await self._with_acks(reader, wanted, look.found)
            if is_fresh:
                await self._wait(look, left_s)
            # Another broker may have changed the rows since this one saw them.
            await refresh(self._engine.store, [each.live for each in wanted])
            is_fresh = True

    async def _with_acks(
        self, reader: ShareReader, wanted: Sequence[AskedPartition], found: Sequence[SharedRecords]
    ) -> list[SharedRecords]:
        """Acknowledgements never wait: also those of partitions that were passed over are told of."""
        told = {each.asked: each for each in found}
        for each in wanted:
            if each.acks:
                outcome = await self.tell(reader, each)
                told.setdefault(each.asked, SharedRecords(each.asked)).ack = outcome
                each.is_told()
        return list(told.values())

    async def tell(self, reader: ShareReader, wanted: AskedPartition, *, leaves: bool = False) -> AckOutcome:
        """Acknowledges without asking for records. `leaves`: the rest that the member has is free."""
        now_ms = self._now_ms()

        def change(state: ShareState) -> tuple[ShareState, AckOutcome]:
            state, outcome = wanted.prepared(state, reader, now_ms)
            if leaves:
                state = released(state, reader.member, reader.rules)
            return state, outcome or AckOutcome(None)

        try:
            if not wanted.acks and (await wanted.live.look()).state is None:
                return AckOutcome(None)
            return await wanted.live.change(change)
        except LakestreamError as error:
            return AckOutcome(error, str(error))

    def _now_ms(self) -> int:
        return self._engine.runtime.clock.now_ms()

    async def _wait(self, look: _Look, left_s: float) -> None:
        if look.busy is not None:
            try:
                async with asyncio.timeout(min(left_s, _BUSY_S)), look.busy:
                    return
            except TimeoutError:
                return
        if not look.watched:
            await asyncio.sleep(left_s)
            return
        left_ms = left_s * 1000
        if look.lapse_ms is not None:
            left_ms = min(left_ms, max(look.lapse_ms - self._now_ms(), 0) + 1)
        await self._engine.store.watch(look.watched, timeout_ms=max(round(left_ms), 1))

    async def _look(self, reader: ShareReader, wanted: Sequence[AskedPartition]) -> _Look:
        """Partitions that another member is just being given records of are passed over."""
        busy = next((each.live.giving for each in wanted if each.live.giving.locked()), None)
        async with AsyncExitStack() as stack:
            free = [each for each in wanted if not each.live.giving.locked()]
            for each in free:
                # Nobody holds it, so nobody who holds some ever waits for another.
                await stack.enter_async_context(each.live.giving)
            return await self._look_at(reader, free, busy)

    async def _look_at(self, reader: ShareReader, free: Sequence[AskedPartition], busy: asyncio.Lock | None) -> _Look:
        found: list[SharedRecords] = []
        watched: dict[Address, int] = {}
        lapses: list[int] = []
        asked: list[tuple[AskedPartition, ShareState, FetchPartition]] = []
        due: list[AskedPartition] = []
        for each, known in zip(free, await asyncio.gather(*(self._known(reader, each) for each in free)), strict=True):
            if isinstance(known, LakestreamError):
                found.append(SharedRecords(each.asked, error=known))
                continue
            state, version = known
            watched[each.live.key.address] = version
            state, _ = each.prepared(state, reader, self._now_ms())
            lapse_ms = next_lapse_ms(state)
            lapses += () if lapse_ms is None else (lapse_ms,)
            offset = wanted_from(state, reader.rules)
            if offset is not None:
                asked.append((each, state, self._request(reader, each, offset)))
            elif each.is_due:
                due.append(each)
        partitions = [each.live.key.partition for each, _, _ in asked]
        # Before the log is read: what is appended meanwhile ends the wait.
        watched.update(self._engine.seen_heads(partitions))
        work = [self._given(reader, each, (), 0, 0, None) for each in due]
        left = reader.max_records
        for (each, state, request), fetched in zip(asked, await self._read(reader, asked), strict=True):
            if fetched.error is not None:
                work.append(self._mended(reader, each, request.offset, fetched.error))
                continue
            batches = located(fetched) if left > 0 else []
            if batches or each.is_due:
                work.append(self._given(reader, each, batches, request.offset, left, fetched))
            if batches:
                each.live.record_bytes = max(1, fetched.size_bytes // (batches[-1].end - batches[0].first))
                _, likely = each.given(state, reader, 0, batches, request.offset, left, fetched.log_start)
                left -= sum(end - first for first, end, _ in likely.acquired)
        found += [each for each in await asyncio.gather(*work) if each is not None]
        return _Look(found, watched, min(lapses, default=None), busy)

    async def _known(self, reader: ShareReader, each: AskedPartition) -> tuple[ShareState, int] | LakestreamError:
        """The row, made if there is none yet."""
        try:
            state, version = await each.live.look()
            if state is None:
                start = await first_offset(self._engine, each.live.key.partition, reader.settings)
                state, version = await each.live.begin(start)
            return (state, version) if state is not None else Conflict("the group's offsets were deleted: ask again")
        except LakestreamError as error:
            return error

    def _request(self, reader: ShareReader, each: AskedPartition, offset: int) -> FetchPartition:
        likely_bytes = int(reader.max_records * each.live.record_bytes * _SPARE)
        most_bytes = min(reader.max_bytes, max(likely_bytes, _LEAST_BYTES))
        return FetchPartition(each.live.key.partition, offset, most_bytes, each.compression, reader.committed)

    async def _read(
        self, reader: ShareReader, asked: Sequence[tuple[AskedPartition, ShareState, FetchPartition]]
    ) -> Sequence[Fetched]:
        requests = [request for _, _, request in asked]
        if not requests:
            return ()
        most_bytes = max(request.max_bytes for request in requests)
        return await self._engine.fetch(requests, min_bytes=0, max_bytes=most_bytes, max_wait_ms=0)

    async def _given(
        self,
        reader: ShareReader,
        each: AskedPartition,
        batches: Sequence[LocatedBatch],
        read_from: int,
        max_records: int,
        fetched: Fetched | None,
    ) -> SharedRecords | None:
        """Nobody is told of records before it is stored that they are with the member."""
        now_ms, log_start = self._now_ms(), 0 if fetched is None else fetched.log_start

        def change(state: ShareState) -> tuple[ShareState, ShareOutcome]:
            return each.given(state, reader, now_ms, batches, read_from, max_records, log_start)

        try:
            told = await each.live.change(change)
        except Conflict:
            # Somebody deleted the row: the next look begins it anew.
            return None
        except LakestreamError as error:
            return SharedRecords(each.asked, error=error)
        each.is_told()
        if not told.acquired and told.ack is None:
            return None
        parts = parts_with(fetched, batches, told.acquired) if fetched is not None else ()
        return SharedRecords(each.asked, parts, told.acquired, ack=told.ack)

    async def _mended(
        self, reader: ShareReader, each: AskedPartition, offset: int, error: LakestreamError
    ) -> SharedRecords | None:
        """Where the log no longer has what was to be delivered the group goes on with what it has."""
        partition = each.live.key.partition
        try:
            if not isinstance(error, OffsetOutOfRange):
                raise error
            earliest = (await self._engine.list_offset(partition, EARLIEST)).offset
            latest = (await self._engine.list_offset(partition, LATEST)).offset
            await each.live.change(lambda state: (within(state, earliest, latest), None))
        except LakestreamError as failure:
            return SharedRecords(each.asked, error=failure)
        return None


def within(state: ShareState, earliest: int, latest: int) -> ShareState:
    """Of a log that was cut: behind its end there is nothing that anybody could be given."""
    return ShareState(latest) if state.end > latest else advanced(state, earliest)
