"""What a topic's settings make of a batch: refused with the records to blame, or kept in another form."""

from itertools import pairwise

import pytest
from support.clients.batches import batch, keyed
from support.clients.records import parse
from support.clients.twin import Row
from support.clients.twin import batch as twin_batch

from lakestream.errors import InvalidRecords, InvalidTimestamp, RecordsTooLarge
from lakestream.records import UNBOUNDED_MS, BatchCompression, BatchRules, compressed, take, validate, walk
from lakestream.records.layout import APPEND_TIME_BIT

NOW_MS = 1_700_000_100_000
CODECS = range(5)


def _at(*times_ms: int) -> bytes:
    return twin_batch([Row(index, time_ms, b"k", b"v") for index, time_ms in enumerate(times_ms)])


def test_without_rules_the_bytes_stay() -> None:
    data = batch(b"a", b"b", compression=1)
    kept, info = take(data, BatchRules(1 << 20), NOW_MS)
    assert kept is data
    assert info == validate(data, BatchRules(1 << 20), NOW_MS)


def test_bounds_are_those_of_the_brokers_time() -> None:
    rules = BatchRules(1 << 20, before_ms=1000, after_ms=500)
    take(_at(NOW_MS - 1000, NOW_MS + 500, -1), rules, NOW_MS)
    with pytest.raises(InvalidTimestamp) as refused:
        take(_at(NOW_MS, NOW_MS - 1001, NOW_MS, NOW_MS + 501), rules, NOW_MS)
    assert [index for index, _ in refused.value.records] == [1, 3]
    for before_ms, after_ms in ((UNBOUNDED_MS, 0), (0, UNBOUNDED_MS), (UNBOUNDED_MS, UNBOUNDED_MS)):
        take(_at(NOW_MS), BatchRules(1 << 20, before_ms=before_ms, after_ms=after_ms), NOW_MS)


@pytest.mark.parametrize("compression", [0, 1])
def test_records_without_a_key_are_named(compression: int) -> None:
    rules = BatchRules(1 << 20, needs_keys=True)
    take(keyed((b"", b"v"), (b"k", None)), rules, NOW_MS)
    data: bytes = keyed((None, b"a"), (b"k", b"b"), (None, b"c"))
    if compression:
        data = bytes(compressed(memoryview(data), BatchCompression(compression)))
    with pytest.raises(InvalidRecords) as refused:
        take(data, rules, NOW_MS)
    assert not isinstance(refused.value, InvalidTimestamp)
    assert [index for index, _ in refused.value.records] == [0, 2]


def test_what_is_no_batch_at_all_is_not_blamed_on_a_record() -> None:
    data = bytearray(keyed((None, b"a")))
    data[-1] ^= 1
    with pytest.raises(Exception, match="checksum"):
        take(bytes(data), BatchRules(1 << 20, needs_keys=True), NOW_MS)


@pytest.mark.parametrize("codec", CODECS)
def test_the_brokers_time_is_every_records(codec: int) -> None:
    data = batch(b"a" * 50, b"b" * 50, timestamp_ms=5, compression=codec)
    kept, info = take(data, BatchRules(1 << 20, append_time=True, before_ms=0, after_ms=0), NOW_MS)
    assert info.attributes == codec | APPEND_TIME_BIT
    assert info.max_timestamp_ms == NOW_MS
    assert [record.timestamp_ms for record in parse([kept])] == [NOW_MS] * 2
    assert walk(kept) == [info]


@pytest.mark.parametrize("kept_as", CODECS)
@pytest.mark.parametrize("sent_as", CODECS)
def test_a_topic_keeps_batches_in_its_own_compression(sent_as: int, kept_as: int) -> None:
    data = batch(*(b"value %d" % number for number in range(200)), compression=sent_as, producer=(7, 1, 40))
    kept, info = take(data, BatchRules(1 << 20, compression=BatchCompression(kept_as)), NOW_MS)
    assert info == validate(bytes(kept), BatchRules(1 << 20), NOW_MS)
    assert (info.attributes, info.producer_id, info.producer_epoch, info.base_sequence) == (kept_as, 7, 1, 40)
    assert parse([kept]) == parse([data])
    assert (kept is data) == (sent_as == kept_as)


def test_the_maximum_is_that_of_what_arrives_and_of_what_is_kept() -> None:
    plain = batch(b"a" * 5000)
    small = batch(b"a" * 5000, compression=1)
    with pytest.raises(RecordsTooLarge):
        take(plain, BatchRules(1000), NOW_MS)
    take(small, BatchRules(1000), NOW_MS)
    with pytest.raises(RecordsTooLarge):
        take(small, BatchRules(1000, compression=BatchCompression(0)), NOW_MS)


@pytest.mark.parametrize("level", [None, 1, 6])
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_rows_are_compressed_batch_by_batch(codec: int, level: int | None) -> None:
    run = b"".join(batch(*(b"x" * 100 for _ in range(50))) for _ in range(3))
    packed = compressed(memoryview(run), BatchCompression(codec, level))
    assert len(packed) < len(run) / 3
    assert [info.attributes for info in walk(packed)] == [codec] * 3
    assert [record.value for record in parse([packed])] == [record.value for record in parse([run])]
    assert all(left.position + left.length == right.position for left, right in pairwise(walk(packed)))
