"""A rebuilt log never shows records of transactions whose end nobody knows as committed, and says so."""

from dataclasses import dataclass, field

import pytest
from support.clients.batches import batch as build_batch
from support.clients.records import parse

from lakestream.bucket.doubtful import transaction_of
from lakestream.bucket.evidence import Fate, FoundSection
from lakestream.bucket.rebuilding import Rebuilt, rebuild
from lakestream.errors import StorageError
from lakestream.metadata.log.commit import Offer, batch_at, decide
from lakestream.metadata.log.ending import decide_end
from lakestream.metadata.log.enlistment import Enlisted
from lakestream.metadata.log.head import Head, ProducerState
from lakestream.metadata.log.transactions import AbortedRange, Ending, aborted_ranges
from lakestream.model import StreamPartition
from lakestream.records import crc32c
from lakestream.records.batches import walk
from lakestream.runtime import system
from lakestream.wal import Placed, Span

PARTITION = StreamPartition(system().new_id(), 0)


@dataclass
class Log:
    """A log as it was, the objects that hold its records, and receipts of them."""

    head: Head = field(default_factory=Head)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    sections: list[FoundSection] = field(default_factory=list)
    fates: dict[str, Fate] = field(default_factory=dict)

    def append(self, data: bytes, *, receipt: bool = True) -> int:
        flush = len(self.sections) + 1
        key = f"a-{flush}"
        batches = [batch_at(info, 0, transaction_of(info)) for info in walk(data)]
        count = sum(each.record_count for each in batches)
        self.objects[key] = data
        span = Span(PARTITION, 0, len(data), crc32c(data), count, 0)
        self.sections.append(FoundSection(key, span, (0, "a", flush), 1))
        asked = [(each.transaction, (each.producer_id, each.producer_epoch)) for each in batches]
        answers = {(name, who): Enlisted(who[1]) for name, who in asked if name is not None}
        offer = Offer(PARTITION, "a", flush, 1, ("main",), key, 0, batches, lambda start, end: 0)
        decision = decide(self.head, self.producers, offer, answers=answers)
        assert not any(each.refusal for each in decision.results), decision.results
        self.head, self.producers = decision.head, {**self.producers, **decision.producers}
        if receipt:
            self.fates[key] = Fate((Placed(decision.results[0].base_offset, count, 0, len(data)),), whole=True)
        return decision.results[0].base_offset

    def end(self, producer_id: int, epoch: int, *, committed: bool) -> None:
        """Its marker is in the metadata store alone."""
        ending = Ending(f"t{producer_id}", epoch, producer_id, epoch, committed, epoch + 1, 0, 5)
        others = [
            each.open.first_offset for number, each in self.producers.items() if each.open and number != producer_id
        ]
        end = decide_end(self.head, self.producers.get(producer_id), min(others, default=None), ending, (0,))
        assert end is not None
        self.head, self.producers[producer_id] = end.head, end.state

    async def rebuild(self, *, frontier: int = 0, saved: bool = False) -> Rebuilt:
        async def read(key: str, start: int, length: int) -> bytes:
            return self.objects[key][start : start + length]

        producers, head = (self.producers, self.head) if saved else ({}, None)
        return await rebuild(PARTITION, frontier, self.sections, self.fates, dict(producers), read, saved=head)

    def committed(self, rebuilt: Rebuilt) -> dict[int, bytes | None]:
        """What readers of committed records see."""
        aborted = aborted_ranges(rebuilt.extents)
        found: dict[int, bytes | None] = {}
        for extent in rebuilt.extents:
            data = self.objects.get(extent.object_key, b"")[extent.position : extent.position + extent.length]
            offset = extent.base_offset
            for info in walk(data):
                one = data[info.position : info.position + info.length]
                if not any(_is_hidden(each, info.producer_id, offset, transaction_of(info)) for each in aborted):
                    found |= {offset + number: record.value for number, record in enumerate(parse([one]))}
                offset += info.record_count
        return found


def _is_hidden(each: AbortedRange, producer_id: int, offset: int, transaction: object) -> bool:
    inside = each.first_offset <= offset < each.marker_offset
    return transaction is not None and each.producer_id == producer_id and inside


def plain(*values: bytes) -> bytes:
    return build_batch(*values)


def transactional(producer_id: int, epoch: int, sequence: int, *values: bytes) -> bytes:
    return build_batch(*values, producer=(producer_id, epoch, sequence), transactional=True)


def is_dense(rebuilt: Rebuilt) -> bool:
    ends = [0, *(each.end_offset for each in rebuilt.extents)]
    return all(each.base_offset == end for each, end in zip(rebuilt.extents, ends, strict=False))


@pytest.mark.parametrize("saved", [False, True])
async def test_offsets_of_lost_markers_stay_taken_and_what_had_an_end_is_in_doubt(saved: bool) -> None:
    log = Log()
    log.append(plain(b"zero"))
    log.append(transactional(1, 0, 0, b"one", b"two"))
    log.end(1, 0, committed=True)
    assert log.append(plain(b"four")) == 4
    log.append(transactional(2, 0, 0, b"five"))
    log.end(2, 0, committed=False)
    assert log.append(plain(b"seven")) == 7
    rebuilt = await log.rebuild(saved=saved)
    assert is_dense(rebuilt)
    assert log.committed(rebuilt) == {0: b"zero", 4: b"four", 7: b"seven"}
    assert (rebuilt.aborted, rebuilt.aborted_records, rebuilt.lost_markers) == (2, 3, 2)
    assert all(state.open is None for state in rebuilt.producers.values())


@pytest.mark.parametrize("saved", [False, True])
async def test_what_was_open_is_aborted(saved: bool) -> None:
    log = Log()
    log.append(transactional(1, 0, 0, b"zero"))
    log.append(plain(b"one"), receipt=False)
    log.append(transactional(1, 0, 1, b"two"), receipt=False)
    rebuilt = await log.rebuild(saved=saved)
    assert log.committed(rebuilt) == {1: b"one"}
    assert (rebuilt.next_offset, rebuilt.aborted, rebuilt.aborted_records) == (4, 1, 2)
    assert aborted_ranges(rebuilt.extents) == [AbortedRange(1, 0, 3)]
    assert all(state.open is None for state in rebuilt.producers.values())


async def test_what_the_table_has_is_not_in_doubt() -> None:
    log = Log()
    log.append(transactional(1, 0, 0, b"zero", b"one"))
    log.end(1, 0, committed=True)
    log.append(plain(b"three"))
    for frontier in (2, 3):
        rebuilt = await log.rebuild(frontier=frontier)
        assert (rebuilt.aborted, rebuilt.next_offset) == (0, 4)
        assert log.committed(rebuilt) == {3: b"three"}


async def test_the_last_markers_are_known_by_the_saved_end() -> None:
    log = Log()
    log.append(transactional(1, 0, 0, b"zero"))
    log.end(1, 0, committed=True)
    log.append(transactional(2, 0, 0, b"two"))
    log.end(2, 0, committed=True)
    rebuilt = await log.rebuild(saved=True)
    assert rebuilt.next_offset >= log.head.next_offset
    assert log.committed(rebuilt) == {}


async def test_a_gap_that_markers_cannot_explain_is_told() -> None:
    log = Log()
    log.append(transactional(1, 0, 0, b"zero"))
    log.append(plain(b"one", b"two"))
    log.append(plain(b"three"))
    log.sections.pop(1)
    with pytest.raises(StorageError, match="from offset 1 to 2 were in the log"):
        await log.rebuild()
    without = Log()
    for value in (b"zero", b"one", b"two"):
        without.append(plain(value))
    without.sections.pop(1)
    with pytest.raises(StorageError, match="from offset 1 to 1 were in the log"):
        await without.rebuild()
