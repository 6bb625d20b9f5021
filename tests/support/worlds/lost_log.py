"""A log whose metadata store is lost: what was in it, and what is left to rebuild it from."""

from dataclasses import dataclass, field

from lakestream.bucket.evidence import Fate, FoundSection
from lakestream.bucket.rebuilding import Rebuilt, rebuild
from lakestream.metadata.log.commit import Offer, batch_at, decide
from lakestream.metadata.log.head import Accepted, Head, ProducerState
from lakestream.model import StreamPartition
from lakestream.records import crc32c
from lakestream.records.batches import walk
from lakestream.runtime import system
from lakestream.wal import Placed, Span
from support.clients.batches import batch as build_batch
from support.clients.records import parse

PARTITION = StreamPartition(system().new_id(), 0)
GENERATION = 1


@dataclass
class LostLog:
    """Sections as the commit decides them, in one log, and receipts of those that are to have one."""

    head: Head = field(default_factory=Head)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    sections: list[FoundSection] = field(default_factory=list)
    fates: dict[str, Fate] = field(default_factory=dict)
    records: dict[int, bytes] = field(default_factory=dict)

    def put(self, session: str, *batches: bytes, time_ms: int = 0) -> FoundSection:
        flush = 1 + sum(section.order[1] == session for section in self.sections)
        key, data = f"{session}-{flush}", b"".join(batches)
        count = sum(info.record_count for info in walk(data))
        span = Span(PARTITION, 0, len(data), crc32c(data), count, 0)
        self.objects[key] = data
        section = FoundSection(key, span, (time_ms, session, flush), GENERATION)
        self.sections.append(section)
        return section

    def commit(
        self, section: FoundSection, *, receipt: bool = True, overdue: frozenset[tuple[int, int]] = frozenset()
    ) -> tuple[Accepted, ...]:
        data = self.objects[section.object_key]
        batches = [batch_at(info, 0) for info in walk(data)]
        _, session, flush = section.order
        offer = Offer(PARTITION, session, flush, GENERATION, (), section.object_key, 0, batches, lambda start, end: 0)
        decision = decide(self.head, self.producers, offer, overdue)
        self.head, self.producers = decision.head, {**self.producers, **decision.producers}
        placed = [
            Placed(each.base_offset, each.end_offset - each.base_offset, each.position, each.length)
            for each in decision.extents
        ]
        if receipt:
            self.fates[section.object_key] = Fate(tuple(placed), whole=True)
        for place in placed:
            values = [each.value for each in parse([data[place.position : place.position + place.length]])]
            self.records |= {place.base_offset + number: value for number, value in enumerate(values)}
        return decision.results

    async def rebuild(
        self, *, frontier: int = 0, saved: dict[int, ProducerState] | None = None, head: Head | None = None
    ) -> Rebuilt:
        async def read(key: str, start: int, length: int) -> bytes:
            return self.objects[key][start : start + length]

        return await rebuild(PARTITION, frontier, self.sections, self.fates, saved or {}, read, saved=head)

    def read(self, rebuilt: Rebuilt) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for extent in rebuilt.extents:
            data = self.objects[extent.object_key][extent.position : extent.position + extent.length]
            assert crc32c(data) == extent.checksum
            values = [each.value for each in parse([data])]
            assert extent.end_offset - extent.base_offset == len(values)
            found |= {extent.base_offset + number: value for number, value in enumerate(values)}
        return found


def numbered(producer_id: int, sequence: int, *values: bytes) -> bytes:
    return build_batch(*values, producer=(producer_id, 0, sequence))
