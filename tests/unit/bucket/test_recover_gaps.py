"""Gaps of a rebuilt log: what lies in them is found from what is known around them, for random histories."""

import random
from collections.abc import Sequence

import msgspec
import pytest
from support.clients.batches import batch as build_batch
from support.clients.records import parse
from support.worlds.lost_log import GENERATION, LostLog, numbered

from lakestream.bucket.evidence import Fate, FoundSection
from lakestream.errors import StorageError
from lakestream.metadata.log.commit import SEQUENCE_GAP, UNKNOWN_PRODUCER
from lakestream.metadata.log.head import ProducerState
from lakestream.records.batches import walk
from lakestream.wal import Placed


async def test_what_was_not_settled_when_rows_were_saved_takes_no_place_of_what_was() -> None:
    """Two uploads, and no receipt of either: rows were saved when the later one was committed, the other one not."""
    log = LostLog()
    log.put("a", build_batch(b"never", b"in", b"it"))
    log.commit(log.put("b", build_batch(b"zero", b"one"), time_ms=1), receipt=False)
    rebuilt = await log.rebuild(head=log.head)
    assert log.read(rebuilt) == log.records | {2: b"never", 3: b"in", 4: b"it"}


async def test_what_lies_in_a_gap_is_judged_by_the_log_there_not_by_the_state_saved_later() -> None:
    """A flush whose outcome its broker never learned, and rows that were saved long after it."""
    log = LostLog()
    log.commit(log.put("a", numbered(1, 0, b"zero")))
    log.commit(log.put("a", numbered(1, 1, b"one")), receipt=False)
    refused = log.commit(log.put("b", build_batch(b"other"), numbered(1, 1, b"one")))
    assert [each.base_offset for each in refused] == [2, 1]
    for sequence in range(2, 60):
        log.commit(log.put("b", numbered(1, sequence, b"%d" % sequence)))
        log.commit(log.put("b", build_batch(b"between")))
    rebuilt = await log.rebuild(saved=log.producers)
    assert log.read(rebuilt) == log.records
    assert rebuilt.producers[1].runs[-1] == log.producers[1].runs[-1]


async def test_of_several_sections_those_are_chosen_that_fill_the_gap() -> None:
    """The oldest alone would fit, and leave an offset that nothing fits."""
    log = LostLog()
    never = log.put("a", build_batch(b"never committed"), time_ms=1)
    log.commit(log.put("b", build_batch(b"zero", b"one"), time_ms=2), receipt=False)
    log.commit(log.put("c", build_batch(b"two"), time_ms=3))
    rebuilt = await log.rebuild()
    found = log.read(rebuilt)
    assert log.records.items() <= found.items()
    assert found[3] == b"never committed"
    assert rebuilt.extents[-1].object_key == never.object_key


async def test_a_producers_batches_lead_into_those_that_follow() -> None:
    log = LostLog()
    log.put("a", numbered(1, 0, b"an attempt that never arrived"), time_ms=1)
    log.commit(log.put("b", build_batch(b"zero"), time_ms=2), receipt=False)
    log.commit(log.put("b", numbered(1, 0, b"one")))
    assert log.read(await log.rebuild()) == log.records


async def test_a_batch_that_overtook_its_predecessor_was_refused() -> None:
    """Both in one section, of a producer of which nothing else is known; its retry is in the next."""
    log = LostLog()
    log.commit(log.put("b", build_batch(b"zero")))
    log.commit(log.put("a", numbered(1, 1, b"two"), numbered(1, 0, b"one")), receipt=False)
    log.commit(log.put("a", numbered(1, 1, b"two")), receipt=False)
    log.commit(log.put("b", build_batch(b"three")))
    assert list(log.records.values()) == [b"zero", b"one", b"two", b"three"]
    assert log.read(await log.rebuild()) == log.records


async def test_what_the_log_has_later_was_not_there_yet() -> None:
    """A batch that came before its predecessor, of which a receipt tells, was refused."""
    log = LostLog()
    log.commit(log.put("a", build_batch(b"zero"), numbered(1, 1, b"two")), receipt=False)
    log.commit(log.put("b", numbered(1, 0, b"one")))
    log.commit(log.put("a", numbered(1, 1, b"two")), receipt=False)
    log.commit(log.put("b", build_batch(b"three")))
    assert log.read(await log.rebuild()) == log.records


async def test_a_section_is_judged_by_the_log_where_it_begins() -> None:
    """The saved state tells where its second batch is, which lies in another section, too: only from there on it is
    seen why its first was refused, and that its third fills the gap."""
    log = LostLog()
    log.commit(log.put("a", numbered(1, 0, b"zero")))
    log.put("b", numbered(1, 1, b"one"), time_ms=1)
    log.commit(
        log.put("c", numbered(1, 2, b"late"), numbered(1, 1, b"one"), build_batch(b"two"), time_ms=2), receipt=False
    )
    saved = dict(log.producers)
    log.commit(log.put("a", build_batch(b"three"), time_ms=3))
    found = log.read(await log.rebuild(saved=saved))
    assert {offset: found[offset] for offset in log.records} == log.records


async def test_a_batch_that_landed_again_after_its_producers_row_had_expired_fills_its_gap() -> None:
    """Receipts tell of the first attempt and of what follows the second, of the second itself none does."""
    log = LostLog()
    log.commit(log.put("a", numbered(1, 0, b"zero"), numbered(1, 1, b"one")))
    log.producers.clear()
    log.commit(log.put("b", numbered(1, 0, b"zero"), build_batch(b"three")), receipt=False)
    log.commit(log.put("c", numbered(1, 1, b"one")), receipt=False)
    log.commit(log.put("d", build_batch(b"five")))
    assert sorted(log.records) == list(range(6))
    assert log.read(await log.rebuild()) == log.records


async def test_a_gap_from_before_the_row_expired_is_filled_though_the_state_tells_of_the_second_attempt() -> None:
    """Both attempts are there once each, though no receipt tells of either."""
    log = LostLog()
    log.commit(log.put("a", numbered(1, 0, b"zero")), receipt=False)
    log.commit(log.put("b", build_batch(b"one")))
    log.producers.clear()
    log.commit(log.put("c", numbered(1, 0, b"zero")), receipt=False)
    rebuilt = await log.rebuild(saved=log.producers)
    assert log.read(rebuilt) == log.records
    assert {extent.object_key for extent in rebuilt.extents} == {"a-1", "b-1", "c-1"}


async def test_an_epoch_that_was_closed_after_its_row_had_expired_keeps_what_it_had_appended() -> None:
    """The saved state tells nothing of the time before, only that nothing more can land."""
    log = LostLog()
    log.commit(log.put("a", numbered(1, 0, b"zero")), receipt=False)
    closed = ProducerState(0, (), 0, 5, UNKNOWN_PRODUCER)
    rebuilt = await log.rebuild(saved={1: closed, 2: closed})
    assert log.read(rebuilt) == log.records
    assert rebuilt.producers[2] == closed
    assert rebuilt.producers[1].closed == UNKNOWN_PRODUCER
    assert rebuilt.producers[1].runs[-1].last_sequence == 0


async def test_an_epoch_that_was_closed_before_anything_of_it_landed_fills_no_gap() -> None:
    """The table took the first of two extents of a flush; between them lay batches whose predecessor never came."""
    log = LostLog()
    early = numbered(1, 5, b"early"), numbered(1, 2, b"too", b"early")
    first = log.put("a", early[0], build_batch(b"zero"), early[1], early[0], build_batch(b"one"), time_ms=1)
    log.commit(first, receipt=False)
    place = walk(log.objects[first.object_key])
    _, zero, *_ = place
    log.fates[first.object_key] = Fate((Placed(0, 1, zero.position, zero.length),), whole=False)
    log.commit(log.put("b", build_batch(b"two"), time_ms=2))
    under_way = log.put("c", early[0], build_batch(b"three"), early[1], build_batch(b"four"), time_ms=3)
    assert {1: b"one", 2: b"two"}.items() <= log.read(await log.rebuild(frontier=1)).items()
    rebuilt = await log.rebuild(frontier=1, saved={1: ProducerState(0, (), 0, 5, SEQUENCE_GAP)})
    assert log.read(rebuilt) == {1: b"one", 2: b"two", 3: b"three", 4: b"four"}
    assert {extent.object_key for extent in rebuilt.extents[2:]} == {under_way.object_key}
    assert rebuilt.producers[1].closed == SEQUENCE_GAP
    assert rebuilt.left_out == 7


async def test_an_upload_that_arrives_when_all_that_told_of_it_is_gone_is_left_out() -> None:
    """Its records are in the table by the object that replaced it. Of records without producer only the head knows."""
    log = LostLog()
    late = log.put("a", build_batch(b"zero"))
    log.commit(log.put("a", build_batch(b"zero")))
    log.sections, log.fates = [late], {}
    head = msgspec.structs.replace(log.head, fence=GENERATION + 1, sessions={})
    rebuilt = await log.rebuild(frontier=1, head=head)
    assert (rebuilt.next_offset, rebuilt.left_out) == (1, 1)
    assert (await log.rebuild(frontier=1)).next_offset == 2


async def test_the_marks_of_saved_heads_tell_where_the_last_flushes_are() -> None:
    """Of one that the fence refused nothing tells. The mark is as good as a receipt, to the single batch."""
    log = LostLog()
    log.put("a", numbered(1, 0, b"never", b"in it"))
    log.commit(log.put("b", build_batch(b"zero")), receipt=False)
    log.commit(
        log.put("c", numbered(2, 1, b"early"), numbered(2, 0, b"one"), build_batch(b"two"), numbered(2, 0, b"one")),
        receipt=False,
    )
    rebuilt = await log.rebuild(head=msgspec.structs.replace(log.head, fence=GENERATION + 1))
    assert log.read(rebuilt) == log.records == {0: b"zero", 1: b"one", 2: b"two"}
    assert [(extent.base_offset, extent.end_offset) for extent in rebuilt.extents] == [(0, 1), (1, 3)]
    assert rebuilt.left_out == 2


async def test_what_is_chosen_ends_where_the_log_ended_when_rows_were_saved() -> None:
    """Without a mark: what would reach beyond that end was not in the log."""
    log = LostLog()
    log.put("a", numbered(1, 0, b"never", b"in it"))
    log.commit(log.put("b", build_batch(b"zero")), receipt=False)
    head = msgspec.structs.replace(log.head, fence=GENERATION + 1, sessions={})
    rebuilt = await log.rebuild(head=head)
    assert log.read(rebuilt) == log.records
    assert rebuilt.left_out == 2


async def test_what_fills_a_gap_up_to_that_end_is_there_once() -> None:
    log = LostLog()
    log.commit(log.put("a", build_batch(b"zero", b"one")), receipt=False)
    saved = msgspec.structs.replace(log.head, sessions={})
    log.commit(log.put("b", build_batch(b"two")))
    assert log.read(await log.rebuild(head=saved)) == log.records


async def test_nothing_is_left_out_for_an_end_that_was_missed() -> None:
    """What was in the log is not found among what is there: a record too many is better than one that is lost."""
    log = LostLog()
    log.commit(log.put("a", build_batch(b"zero", b"one")), receipt=False)
    log.commit(log.put("b", build_batch(b"two", b"three")), receipt=False)
    head = msgspec.structs.replace(log.head, next_offset=3, fence=GENERATION + 1, sessions={})
    assert set(log.read(await log.rebuild(head=head)).values()) == {b"zero", b"one", b"two", b"three"}


async def test_what_was_committed_after_a_flush_of_a_later_number_is_kept() -> None:
    """An object that replaces another has a later number, and goes before those that were written in between."""
    log = LostLog()
    between = log.put("a", build_batch(b"one"))
    log.commit(log.put("a", build_batch(b"zero")), receipt=False)
    saved = log.head
    log.commit(between, receipt=False)
    assert log.read(await log.rebuild(head=saved)) != {}
    log.fates["a-2"] = Fate((Placed(0, 1, 0, len(log.objects["a-2"])),), whole=True)
    assert log.read(await log.rebuild(head=saved)) == log.records


async def test_behind_the_end_an_attempt_at_a_batch_that_is_there_is_left_out() -> None:
    log = LostLog()
    log.commit(log.put("a", numbered(1, 0, b"zero")))
    log.producers.clear()
    log.commit(log.put("b", numbered(1, 0, b"zero")), receipt=False)
    rebuilt = await log.rebuild()
    assert log.read(rebuilt) == {0: b"zero"}
    assert rebuilt.left_out == 1


async def test_records_that_are_nowhere_are_told() -> None:
    log = LostLog()
    log.commit(log.put("a", build_batch(b"zero", b"one")), receipt=False)
    log.commit(log.put("b", build_batch(b"two")))
    del log.sections[0]
    with pytest.raises(StorageError, match="offset 0 to 1 were in the log, and no WAL object has them"):
        await log.rebuild()


async def test_a_damaged_section_is_named_unless_the_table_has_it() -> None:
    log = LostLog()
    log.commit(log.put("a", build_batch(b"zero")))
    log.commit(log.put("a", build_batch(b"one")))
    log.objects["a-1"] = log.objects["a-1"][:-1] + b"?"
    assert log.read(await log.rebuild(frontier=1)) == {1: b"one"}
    with pytest.raises(StorageError, match="a-1 is damaged"):
        await log.rebuild()


def play(seed: int) -> LostLog:
    """Three brokers and their uploads, committed in any order between brokers; producers have several batches in flight
    and send again what had no answer, elsewhere too. Of each session's flushes only the last may lack their receipts,
    and single ones before."""
    chance, log = random.Random(seed), LostLog()
    in_flight_most = chance.choice((1, 3))
    sequences, saved = dict.fromkeys(range(3), 0), dict[int, ProducerState]()
    waiting: dict[str, list[FoundSection]] = {"a": [], "b": [], "c": []}
    in_flight: dict[int, dict[int, bytes]] = {producer: {} for producer in sequences}
    committed: dict[str, list[FoundSection]] = {"a": [], "b": [], "c": []}
    for step in range(chance.randint(4, 40)):
        session = chance.choice("abc")
        if waiting[session] and chance.random() < 0.6:
            section = waiting[session].pop(0)
            log.commit(section)
            committed[session].append(section)
            continue
        batches = []
        for producer in chance.sample(range(4), chance.randint(1, 3)):
            values = [b"%d.%d.%d" % (producer, step, number) for number in range(chance.randint(1, 3))]
            if producer == 3:
                batches.append(build_batch(*values))
                continue
            known = log.producers.get(producer)
            landed = known.runs[-1].last_sequence if known else -1
            mine = in_flight[producer] = {at: each for at, each in in_flight[producer].items() if at > landed}
            if len(mine) < in_flight_most:
                mine[sequences[producer]] = numbered(producer, sequences[producer], *values)
                sequences[producer] += len(values)
            batches += chance.sample(list(mine.values()), chance.randint(1, len(mine)))
        waiting[session].append(log.put(session, *batches, time_ms=chance.choice((step, step - 3))))
        if chance.random() < 0.1:
            saved = dict(log.producers)
    for sections in committed.values():
        last = chance.randint(0, 3)
        for section in [*sections[len(sections) - last :], *(each for each in sections if chance.random() < 0.05)]:
            log.fates.pop(section.object_key, None)
    log.producers = saved
    return log


@pytest.mark.parametrize("seed", range(400))
async def test_a_random_history_is_rebuilt_with_every_record_once(seed: int) -> None:
    log = play(seed)
    rebuilt = await log.rebuild(saved=log.producers)
    found = log.read(rebuilt)
    assert sorted(found) == list(range(rebuilt.next_offset))
    values = list(found.values())
    assert len(set(values)) == len(values), "a record is there twice"
    assert set(log.records.values()) <= set(values), "a record is lost"
    for key, fate in log.fates.items():
        for place in fate.placed:
            told = _values(log.objects[key][place.position : place.position + place.length])
            assert [found[place.base_offset + number] for number in range(len(told))] == told


def _values(data: bytes) -> Sequence[bytes | None]:
    return [each.value for each in parse([data])]
