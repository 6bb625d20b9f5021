"""The way of a decided insert into the log: its batches are appended object by object, by a producer of their own.

Whoever appends a batch that is in the log is told so, by its sequence; so any number of processes may do this at once,
and each may stop anywhere. Where the fence has passed an object its bytes are copied into a newer one first, which the
insert's row names before anybody appends from it: of the two at most one can be in the log.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from lakestream import wal
from lakestream.errors import Conflict, CorruptObject, RetryableError, StorageError, Unavailable, UnknownStream
from lakestream.metadata.counters import cluster_id, current_generation
from lakestream.metadata.inserts import InsertedObject, InsertedSection, Inserts, LiveInsert
from lakestream.metadata.log.commit import DUPLICATE, Batch, Offer, refusal_of
from lakestream.metadata.log.committer import (
    Committed,
    Committer,
    Gone,
    SessionLost,
    Unreadable,
    UploadAgain,
    Verdict,
    producer_state,
)
from lakestream.metadata.log.head import Accepted, producer_key, shard_of
from lakestream.metadata.log.partition import read_head
from lakestream.metadata.store import Address, Store
from lakestream.model import StreamPartition
from lakestream.objects import ObjectStore
from lakestream.records import crc32c
from lakestream.runtime import Runtime
from lakestream.stream.appending.receipts import given_up
from lakestream.stream.inserting.batching import Packed, copied, described, section_from, sections_of
from lakestream.wal import BuiltObject, Receipt, Section

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 8
_RETRY_FIRST_MS: Final = 20
_RETRY_MOST_MS: Final = 1_000
_EPOCH: Final = 0


class InsertAppender:
    """Alone in its process: it has one commit loop."""

    def __init__(self, store: Store, bucket: ObjectStore, inserts: Inserts, runtime: Runtime) -> None:
        self._store = store
        self._bucket = bucket
        self._inserts = inserts
        self._runtime = runtime
        self._committer = Committer(store)
        self._turn = asyncio.Lock()
        self._session = ""
        self._flushes = 0

    async def new_session(self) -> str:
        return wal.session_name(self._runtime.new_id(), await cluster_id(self._store, self._runtime))

    async def upload(self, live: LiveInsert, packed: Sequence[Packed]) -> tuple[InsertedObject, ...]:
        """Of an insert that was begun. Raises `Unavailable`: nothing of it can be in the log."""
        found = []
        flush = live.insert.flush
        for each in packed:
            partitions = {index: StreamPartition(live.insert.topic_id, index) for index in each}
            sections = sections_of(partitions, each)
            key, built, flush = await self._put(live, live.insert.generation, sections, (), flush)
            found.append(described(key, live.insert.generation, built, each))
        return tuple(found)

    async def append(self, live: LiveInsert) -> LiveInsert:
        """Returns when all of it is in the log; the row that tells so far. Raises `UnknownStream` if the topic is gone,
        `Conflict` if somebody else has copied an object meanwhile, `Unavailable`."""
        async with self._turn:
            place = 0
            while place < len(live.insert.objects):
                fenced = await self._commit(live, live.insert.objects[place])
                if fenced:
                    live = await self._copy(live, place, fenced)
                else:
                    place += 1
            return live

    async def _commit(self, live: LiveInsert, found: InsertedObject) -> list[InsertedSection]:
        """The sections that are not in the log and never can be, out of this object."""
        if not self._session:
            self._session = await self.new_session()
        self._flushes += 1
        offers = [self._offer(live, found, section) for section in found.sections]
        verdicts: dict[StreamPartition, Verdict] = {}
        step, delay_ms = self._committer.commit, _RETRY_FIRST_MS
        for attempt in range(_ATTEMPTS):
            try:
                await step(offers, verdicts)
                break
            except Unavailable as error:
                if attempt == _ATTEMPTS - 1:
                    raise
                _log.warning("an insert into topic %s is appended again: %s", live.insert.topic_id, error)
            step = self._committer.resume
            delay_ms = await self._back_off(delay_ms)
        fenced = []
        for section in found.sections:
            partition = StreamPartition(live.insert.topic_id, section.partition)
            if not await self._is_in(live, partition, section, verdicts[partition]):
                fenced.append(section)
        return fenced

    async def _is_in(
        self, live: LiveInsert, partition: StreamPartition, section: InsertedSection, verdict: Verdict
    ) -> bool:
        """Whether the section is in the log. False: nor can it get there any more."""
        match verdict:
            case Committed(results):
                if all(map(_is_placed, results)):
                    return True
                refused = next(result.refusal for result in results if not _is_placed(result))
                raise StorageError(
                    f"an insert into {partition.topic_id}-{partition.index} is refused by its log ({refused}), though"
                    " its producer is its own"
                )
            case Gone():
                raise UnknownStream(f"{partition} does not exist any more")
            case Unreadable(error, unknown):
                raise Unavailable(f"whether rows were appended is not known: {error}") if unknown else error
            case SessionLost():
                self._session = ""
            case UploadAgain():
                pass
        # The fence is above the object's generation, as the head said: no attempt of anybody lands any more. So what
        # the producer's row, read after it, does not tell of will never be in the log out of this object.
        if await read_head(self._store, partition) is None:
            raise UnknownStream(f"{partition} does not exist any more")
        address = Address(shard_of(partition), producer_key(live.insert.producer_id))
        [row] = await self._store.get([address])
        state = producer_state(row, address)
        if state is None:
            return False
        found = [refusal_of(state, batch) for batch in _batches(live, section)]
        return all(each is not None and each.refusal == DUPLICATE for each in found)

    async def _copy(self, live: LiveInsert, place: int, fenced: Sequence[InsertedSection]) -> LiveInsert:
        """Into an object of the present generation, which stands behind the one that it takes the sections of."""
        old = live.insert.objects[place]
        topic_id = live.insert.topic_id
        sections = [
            section_from(
                StreamPartition(topic_id, section.partition),
                section,
                await self._bucket.get_range(old.object_key, section.position, section.length),
            )
            for section in fenced
        ]
        for section, at in zip(sections, fenced, strict=True):
            _check(old.object_key, section, at)
        generation = await current_generation(self._store)
        receipts = [given_up(old.object_key, [section.partition for section in sections])]
        key, built, flush = await self._put(live, generation, sections, receipts, live.insert.flush)
        gone = {section.partition for section in fenced}
        kept = msgspec.structs.replace(
            old, sections=tuple(section for section in old.sections if section.partition not in gone)
        )
        fresh = copied(key, generation, built, fenced)
        before, behind = live.insert.objects[:place], live.insert.objects[place + 1 :]
        objects = (*before, *((kept,) if kept.sections else ()), fresh, *behind)
        moved = await self._inserts.put(
            msgspec.structs.replace(live.insert, objects=objects, flush=flush), live.version
        )
        if moved is None:
            raise Conflict("another process goes on with the same insert")
        return moved

    async def _put(
        self, live: LiveInsert, generation: int, sections: Sequence[Section], receipts: Sequence[Receipt], flush: int
    ) -> tuple[str, BuiltObject, int]:
        """Retries under fresh names: a PUT that seemed to fail may have landed. The name's number comes back."""
        told, delay_ms = list(receipts), _RETRY_FIRST_MS
        for attempt in range(_ATTEMPTS):
            flush += 1
            key = wal.object_key(generation, live.insert.session, flush)
            built = wal.build(sections, told, session=live.insert.session, flush=flush, generation=generation)
            try:
                await self._bucket.put(key, built.parts)
            except RetryableError as error:
                if attempt == _ATTEMPTS - 1:
                    raise Unavailable(f"the object store did not take {key}: {error}; no row was inserted") from error
                told.append(given_up(key, [section.partition for section in sections]))
                delay_ms = await self._back_off(delay_ms)
            else:
                return key, built, flush
        raise AssertionError("an attempt returns or raises")

    def _offer(self, live: LiveInsert, found: InsertedObject, section: InsertedSection) -> Offer:
        def checksum(start: int, end: int) -> int:
            if (start, end) != (0, section.length):
                raise StorageError(f"{found.object_key} is in the log in part, which an insert's object never is")
            return section.checksum

        return Offer(
            partition=StreamPartition(live.insert.topic_id, section.partition),
            session=self._session,
            flush=self._flushes,
            generation=found.generation,
            stores=(wal.MAIN_STORE,),
            object_key=found.object_key,
            position=section.position,
            batches=_batches(live, section),
            checksum=checksum,
            time_ms=self._runtime.clock.now_ms(),
        )

    async def _back_off(self, delay_ms: int) -> int:
        await asyncio.sleep(delay_ms / 1000 * self._runtime.random.uniform(0.5, 1.0))
        return min(delay_ms * 2, _RETRY_MOST_MS)


def _is_placed(result: Accepted) -> bool:
    return result.base_offset >= 0 or result.refusal == DUPLICATE


def _batches(live: LiveInsert, section: InsertedSection) -> list[Batch]:
    return [
        Batch(
            position=batch.position,
            length=batch.length,
            record_count=batch.record_count,
            max_timestamp_ms=batch.max_timestamp_ms,
            producer_id=live.insert.producer_id,
            producer_epoch=_EPOCH,
            base_sequence=batch.base_sequence,
        )
        for batch in section.batches
    ]


def _check(object_key: str, section: Section, at: InsertedSection) -> None:
    data = section.parts[0]
    if crc32c(data) != at.checksum:
        raise CorruptObject(f"{object_key} is damaged: the checksum of partition {at.partition} does not hold")
