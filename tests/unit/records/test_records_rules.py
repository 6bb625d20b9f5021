"""What a topic's settings make of a batch: refused with the records to blame, or kept in another form."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.batches import batch, keyed
from support.clients.records import parse
from support.clients.twin import Row
from support.clients.twin import batch as twin_batch
from support.schemas.avro import framed

from lakestream.errors import InvalidRecords, InvalidTimestamp, RecordsTooLarge, UnknownSchema
from lakestream.records import UNBOUNDED_MS, BatchCompression, BatchRules, SchemaIds, compressed, take, validate, walk
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


def _named(*ids: int | None) -> list[bytes | None]:
    return [None if each is None else framed(each, b"value") for each in ids]


@pytest.mark.parametrize("codec", CODECS)
def test_values_name_one_of_the_subjects_schemas_or_are_none(codec: int) -> None:
    rules = BatchRules(1 << 20, value_ids=SchemaIds.of("orders-value", [9, 3, 70_000, 2**31 - 1]))
    data = batch(*_named(3, 9, None, 70_000, 70_000, 2**31 - 1, 3), compression=codec)
    assert take(data, rules, NOW_MS)[0] is data
    with pytest.raises(UnknownSchema) as refused:
        take(batch(*_named(3, 4, None, 9, 4, 2**32 - 1), compression=codec), rules, NOW_MS)
    assert [index for index, _ in refused.value.records] == [1, 4, 5]
    assert refused.value.ids == {4, 2**32 - 1}
    assert refused.value.subject == "orders-value"
    assert "schema 4" in refused.value.records[0][1]
    assert "3, 9, 70000" in refused.value.records[0][1]


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\1\0\0\0\3 {}", b'{"id": 1}', b"\0"])
def test_a_value_without_an_id_is_named(value: bytes) -> None:
    rules = BatchRules(1 << 20, value_ids=SchemaIds.of("orders-value", [3]))
    with pytest.raises(InvalidRecords, match="does not begin with the id of its schema") as refused:
        take(batch(framed(3, b""), value, framed(3, b"v"), value), rules, NOW_MS)
    assert not isinstance(refused.value, UnknownSchema)
    assert [index for index, _ in refused.value.records] == [1, 3]


def test_a_subject_without_schemas_takes_tombstones_only() -> None:
    rules = BatchRules(1 << 20, value_ids=SchemaIds.of("orders-value", []))
    take(batch(None, None, key=b"k"), rules, NOW_MS)
    with pytest.raises(UnknownSchema, match="has none"):
        take(batch(framed(1, b"")), rules, NOW_MS)


def test_what_else_is_wrong_with_a_record_is_told_first() -> None:
    rules = BatchRules(1 << 20, needs_keys=True, value_ids=SchemaIds.of("orders-value", [3]))
    data = keyed((None, framed(4, b"")), (b"k", framed(5, b"")), (b"k", b"v"), (b"k", framed(3, b"")))
    with pytest.raises(UnknownSchema) as refused:
        take(data, rules, NOW_MS)
    told = [text for _, text in refused.value.records]
    assert ["key only" in told[0], "schema 5" in told[1], "does not begin" in told[2]] == [True] * 3
    assert refused.value.ids == {5}


@given(st.lists(st.none() | st.binary(max_size=8) | st.integers(0, 20).map(lambda it: framed(it, b"v")), min_size=1))
def test_exactly_the_records_at_fault_are_named(values: list[bytes | None]) -> None:
    known = {2, 5, 11, 12}
    rules = BatchRules(1 << 20, value_ids=SchemaIds.of("s", known))
    good = [
        each is None or (len(each) >= 5 and each[0] == 0 and int.from_bytes(each[1:5], "big") in known)
        for each in values
    ]
    try:
        take(batch(*values), rules, NOW_MS)
        blamed = []
    except InvalidRecords as error:
        blamed = [index for index, _ in error.records]
    assert blamed == [index for index, is_good in enumerate(good) if not is_good]
