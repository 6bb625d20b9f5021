"""Rebuilt logs of producers whose epoch was closed, where nothing tells of it."""

import pytest
from support.clients.batches import batch as build_batch
from support.worlds.lost_log import LostLog, numbered

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
