"""Rebuilt logs where less is known of producers than the log knew: closed epochs, rows that were saved too early."""

from dataclasses import replace

import msgspec
import pytest
from support.clients.batches import batch as build_batch
from support.worlds.lost_log import GENERATION, LostLog, numbered

from lakestream.metadata.log.commit import SEQUENCE_GAP


@pytest.mark.parametrize(("producer_id", "sequences"), [(1, (2, 0, 1)), (2, (3, 1, 2))])
async def test_batches_of_an_epoch_that_a_batch_before_them_closed_fill_no_gap(
    producer_id: int, sequences: tuple[int, ...]
) -> None:
    """Their producer sent them in the wrong order, and waited for long. Nothing tells of it but what is left."""
    log = LostLog()
    log.commit(log.put("a", numbered(2, 0, b"zero")))
    overtaken = [numbered(producer_id, sequence, b"%d" % sequence) for sequence in sequences]
    flush = log.put("b", *overtaken, build_batch(b"one"))
    results = log.commit(flush, receipt=False, overdue=frozenset({(producer_id, 0)}))
    assert [each.base_offset >= 0 for each in results] == [False, False, False, True]
    log.commit(log.put("c", build_batch(b"two")))
    rebuilt = await log.rebuild()
    assert log.read(rebuilt) == log.records
    assert rebuilt.producers[producer_id].closed == SEQUENCE_GAP
    assert rebuilt.left_out == 3


async def test_batches_of_an_epoch_that_was_closed_in_an_object_that_is_gone_fill_no_gap() -> None:
    log = LostLog()
    log.commit(log.put("a", build_batch(b"zero")))
    log.commit(log.put("a", numbered(1, 2, b"two")), overdue=frozenset({(1, 0)}))
    log.commit(log.put("b", numbered(1, 0, b"0"), numbered(1, 1, b"1"), build_batch(b"one")), receipt=False)
    log.commit(log.put("c", build_batch(b"two")))
    rebuilt = await log.rebuild()
    assert log.read(rebuilt) == log.records == {0: b"zero", 1: b"one", 2: b"two"}
    assert rebuilt.producers[1].closed == SEQUENCE_GAP
    assert rebuilt.left_out == 2


async def test_what_follows_records_that_left_the_wal_since_rows_were_saved_is_kept() -> None:
    """They are in the table, their object is collected, and the saved row of their producer ends before them."""
    log = LostLog()
    log.commit(log.put("a", numbered(1, 0, b"zero")))
    saved, head = dict(log.producers), log.head
    log.commit(log.put("a", numbered(1, 1, b"one", b"two")))
    log.sections, log.fates = [], {}
    follows = log.put("b", numbered(1, 4, b"four"), time_ms=2), log.put("c", numbered(1, 3, b"three"), time_ms=3)
    for section in reversed(follows):
        log.commit(section, receipt=False)
    rebuilt = await log.rebuild(frontier=3, saved=saved, head=head)
    assert log.read(rebuilt) == {3: b"three", 4: b"four"}
    [run] = rebuilt.producers[1].runs
    assert (rebuilt.producers[1].lowest_sequence, run.last_sequence) == (3, 4), "what came before is nobody's duplicate"


async def test_of_two_uploads_of_which_one_was_refused_both_are_kept() -> None:
    """Both would end the log where it ended when rows were saved, and the fence had forgotten their sessions."""
    log = LostLog()
    log.put("a", build_batch(b"refused"))
    log.commit(log.put("b", build_batch(b"acknowledged")), receipt=False)
    head = msgspec.structs.replace(log.head, fence=GENERATION + 1, sessions={})
    for sections in (log.sections, [*reversed(log.sections)]):
        log.sections = [replace(each, order=(number, *each.order[1:])) for number, each in enumerate(sections)]
        assert set(log.read(await log.rebuild(head=head)).values()) == {b"refused", b"acknowledged"}


async def test_what_had_no_predecessor_stays_out_where_all_is_known() -> None:
    log = LostLog()
    log.commit(log.put("a", numbered(1, 0, b"zero")))
    saved, head = dict(log.producers), log.head
    log.commit(log.put("b", build_batch(b"one")))
    log.commit(log.put("c", numbered(1, 2, b"overtook")), receipt=False)
    rebuilt = await log.rebuild(frontier=2, saved=saved, head=head)
    assert (log.read(rebuilt), rebuilt.left_out) == ({}, 1)
