"""One partition's log, rebuilt from what WAL objects and their receipts say. Pure but for the bytes that it asks for.

What receipts place has its offsets. A gap between them is filled by sections of which no receipt speaks, the oldest
first, if they fit; what is left of those is appended behind the end, except what the producer's sequences say is there
already or never was. The table's frontier is where the log begins to be needed: a section that is in the
table has a receipt (`frontier.receipts`), so what has none is in no table.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lakestream.errors import StorageError
from lakestream.metadata.commit import Batch, is_next, remembered_offset, replayed
from lakestream.metadata.head import Extent, ProducerState
from lakestream.model import StreamPartition
from lakestream.objects import Buffer
from lakestream.records import crc32c
from lakestream.records.batches import walk
from lakestream.wal import Placed, Span

STORES: Final = ("main",)


@dataclass(frozen=True, slots=True)
class Section:
    """One partition's part of a WAL object. `order`: by what is known of the time, and within a session by flush.
    `placed`: the parts of it that receipts place."""

    object_key: str
    span: Span
    order: tuple[int, str, int]
    placed: tuple[Placed, ...] = ()

    @property
    def unplaced(self) -> int:
        return self.span.record_count - sum(each.record_count for each in self.placed)

    def is_placed(self, position: int) -> bool:
        return any(each.position <= position < each.position + each.length for each in self.placed)


@dataclass(frozen=True, slots=True)
class Fate:
    """What receipts say of a section. `whole`: a broker's, which speaks of every byte of it."""

    placed: tuple[Placed, ...]
    whole: bool


@dataclass(slots=True)
class Rebuilt:
    """`appended`: records of objects without receipt that are in the log now. `left_out`: those that are not, because
    their producer's sequences say that they are there already, or that they never were in the log."""

    extents: list[Extent] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    next_offset: int = 0
    appended: int = 0
    left_out: int = 0


Read = Callable[[str, int, int], Awaitable[Buffer]]
"""Bytes of an object: its key, where they begin, how many."""


async def rebuild(
    partition: StreamPartition,
    frontier: int,
    sections: Iterable[Section],
    fates: dict[str, Fate],
    producers: dict[int, ProducerState],
    read: Read,
) -> Rebuilt:
    """`fates` by object key. Raises `StorageError` where records that were in the log are in no object any more."""
    work = _Work(partition, Rebuilt(producers=dict(producers), next_offset=frontier), read)
    unknown: list[Section] = []
    placed: dict[tuple[str, int], tuple[Section, Placed]] = {}
    for section in sorted(sections, key=lambda each: each.order):
        fate = fates.get(section.object_key)
        if fate is None:
            unknown.append(section)
            continue
        told = tuple(_told(each, section.span) for each in fate.placed)
        placed |= {(section.object_key, each.position): (section, each) for each in told}
        if not fate.whole and sum(each.record_count for each in told) < section.span.record_count:
            unknown.append(replace(section, placed=told))
    unknown = await work.place_remembered(unknown, placed, frontier)
    for section, place in sorted(placed.values(), key=lambda each: each[1].base_offset):
        end = place.base_offset + place.record_count
        if end <= frontier:
            await work.replay(section, place)
        elif place.base_offset <= work.rebuilt.next_offset or await work.fill(unknown, place.base_offset):
            await work.place(section, place)
        else:
            raise StorageError(
                f"partition {partition.index} of topic {partition.topic_id}: the records from offset"
                f" {work.rebuilt.next_offset} to {place.base_offset - 1} were in the log, and no WAL object has them:"
                " restore the bucket from a backup"
            )
    await work.append(unknown)
    return work.rebuilt


def _told(place: Placed, span: Span) -> Placed:
    """Receipts of WAL format 2 tell only where a section begins: it is taken for whole."""
    if place.length >= 0:
        return place
    return Placed(place.base_offset, span.record_count, span.position, span.length)


@dataclass(slots=True)
class _Work:
    partition: StreamPartition
    rebuilt: Rebuilt
    read: Read

    async def place_remembered(
        self, unknown: Sequence[Section], placed: dict[tuple[str, int], tuple[Section, Placed]], frontier: int
    ) -> list[Section]:
        """Producers' saved states tell the offsets of their last batches, as good as a receipt. What is left."""
        left = []
        taken = [(place.base_offset, place.base_offset + place.record_count) for _, place in placed.values()]
        for section in unknown:
            span = section.span
            told = list(section.placed)
            batches = await self._batches(section, span.position, span.length)
            for batch, _ in batches:
                position = span.position + batch.position
                offset = remembered_offset(self.rebuilt.producers.get(batch.producer_id), batch)
                if offset is None or section.is_placed(position):
                    continue
                place = Placed(offset, batch.record_count, position, batch.length)
                told.append(place)
                if offset < frontier or any(start <= offset < end for start, end in taken):
                    self.rebuilt.left_out += batch.record_count
                else:
                    placed[section.object_key, position] = section, place
                    taken.append((offset, offset + batch.record_count))
            if sum(each.record_count for each in told) < span.record_count:
                left.append(replace(section, placed=tuple(told)))
        return left

    async def replay(self, section: Section, place: Placed) -> None:
        """In the table: only its producers matter."""
        offset = place.base_offset
        for batch, _ in await self._batches(section, place.position, place.length):
            self._remember(batch, offset)
            offset += batch.record_count

    async def place(self, section: Section, place: Placed) -> None:
        if place.base_offset + place.record_count <= self.rebuilt.next_offset and self.rebuilt.extents:
            raise StorageError(
                f"partition {self.partition.index} of topic {self.partition.topic_id}: two receipts give the offsets"
                f" from {place.base_offset} on away, one of them for {section.object_key}"
            )
        await self.replay(section, place)
        data = await self.read(section.object_key, place.position, place.length)
        self._add(section, place.base_offset, place.record_count, place.position, bytes(data))

    async def fill(self, unknown: list[Section], up_to: int) -> bool:
        """Sections without receipt, up to an offset that a receipt gives. Whether they reach it."""
        for section in list(unknown):
            if self.rebuilt.next_offset == up_to:
                break
            if self.rebuilt.next_offset + section.unplaced <= up_to:
                unknown.remove(section)
                await self._append(section)
        return self.rebuilt.next_offset == up_to

    async def append(self, unknown: Sequence[Section]) -> None:
        """Behind the end. Brokers' objects may come in another order than they were committed in: what waits for its
        producer's earlier batches is tried again."""
        waiting = list(unknown)
        while waiting:
            refused = [section for section in waiting if not await self._append(section)]
            if len(refused) == len(waiting):
                break
            waiting = refused
        self.rebuilt.left_out += sum(section.unplaced for section in waiting)

    async def _append(self, section: Section) -> bool:
        """Whether any of it went in. Batches that cannot are left out once others of the section are in."""
        span = section.span
        batches = await self._batches(section, span.position, span.length)
        accepted = False
        refused = 0
        for batch, data in batches:
            if section.is_placed(span.position + batch.position):
                continue
            if is_next(self.rebuilt.producers.get(batch.producer_id), batch):
                base_offset = self.rebuilt.next_offset
                self._remember(batch, base_offset)
                self._add(section, base_offset, batch.record_count, span.position + batch.position, data)
                self.rebuilt.appended += batch.record_count
                accepted = True
            else:
                refused += batch.record_count
        if accepted:
            self.rebuilt.left_out += refused
        return accepted

    def _remember(self, batch: Batch, base_offset: int) -> None:
        if batch.producer_id >= 0:
            known = self.rebuilt.producers.get(batch.producer_id)
            self.rebuilt.producers[batch.producer_id] = replayed(known, batch, base_offset, batch.max_timestamp_ms)

    def _add(self, section: Section, base_offset: int, count: int, position: int, data: bytes) -> None:
        self.rebuilt.extents.append(
            Extent(
                base_offset=base_offset,
                end_offset=base_offset + count,
                stores=STORES,
                object_key=section.object_key,
                position=position,
                length=len(data),
                max_timestamp_ms=section.span.max_timestamp_ms,
                checksum=crc32c(data),
            )
        )
        self.rebuilt.next_offset = base_offset + count

    async def _batches(self, section: Section, position: int, length: int) -> list[tuple[Batch, bytes]]:
        data = bytes(await self.read(section.object_key, position, length))
        start = position - section.span.position
        return [
            (
                Batch(
                    position=start + info.position,
                    length=info.length,
                    record_count=info.record_count,
                    max_timestamp_ms=info.max_timestamp_ms,
                    producer_id=info.producer_id,
                    producer_epoch=info.producer_epoch,
                    base_sequence=info.base_sequence,
                ),
                data[info.position : info.position + info.length],
            )
            for info in walk(data)
        ]
