"""What a producer may send, and the answer to everything else."""

import struct

import cramjam
import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.batches import batch as client_batch
from support.clients.twin import Row, batch, body, frame, varint
from support.properties import examples

from lakestream.errors import (
    CorruptRecords,
    InvalidRecords,
    InvalidTimestamp,
    RecordsTooLarge,
    RequestError,
    UnsupportedRecords,
)
from lakestream.records import BatchRules, control_batch, validate, walk
from lakestream.records.compression import MAX_DECOMPRESSED_BYTES

MAX = 1 << 20
NEWEST_MS = 253_402_300_799_999
ROWS = [Row(index, 1000 + index, b"key", b"value", ((b"h", None),)) for index in range(3)]
BATCH = batch(ROWS)
FIELDS = {
    "length": (8, "i"),
    "magic": (16, "b"),
    "crc": (17, "I"),
    "attributes": (21, "h"),
    "last_delta": (23, "i"),
    "base_timestamp": (27, "q"),
    "max_timestamp": (35, "q"),
    "producer_id": (43, "q"),
    "epoch": (51, "h"),
    "sequence": (53, "i"),
    "count": (57, "i"),
}


def resealed(data: bytes | bytearray) -> bytes:
    """With the checksum that its bytes have."""
    data = bytearray(data)
    struct.pack_into(">I", data, 17, google_crc32c.value(bytes(data[21:])))
    return bytes(data)


def changed(data: bytes = BATCH, *, sealed: bool = True, **fields: int) -> bytes:
    altered = bytearray(data)
    for name, value in fields.items():
        position, kind = FIELDS[name]
        struct.pack_into(f">{kind}", altered, position, value)
    return resealed(altered) if sealed else bytes(altered)


def check(data: bytes) -> None:
    validate(data, BatchRules(MAX), 0)


@pytest.mark.parametrize("compression", range(5))
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_clients_send_is_taken(compression: int, kind: type) -> None:
    data = client_batch(b"a", None, b"", b"x" * 5000, compression=compression, producer=(9, 0, 5), key=b"k")
    info = validate(kind(data), BatchRules(MAX), 0)
    assert (info.position, info.length, info.record_count, info.last_offset_delta) == (0, len(data), 4, 3)
    assert info.attributes & 7 == compression
    assert (info.producer_id, info.producer_epoch, info.base_sequence) == (9, 0, 5)
    assert (info.base_timestamp_ms, info.max_timestamp_ms) == (1_700_000_000_000, 1_700_000_000_003)
    assert walk(kind(data)) == [info]


def test_the_newest_timestamp_is_the_records_whatever_the_header_says() -> None:
    for claimed in (-1, 5, NEWEST_MS):
        info = validate(changed(max_timestamp=claimed), BatchRules(MAX), 0)
        assert info.max_timestamp_ms == 1002


def test_records_without_a_time_are_taken() -> None:
    info = validate(batch([Row(0, -1, None, b"v")]), BatchRules(MAX), 0)
    assert info.max_timestamp_ms == -1
    info = validate(batch([Row(0, -1, None, b"v"), Row(1, NEWEST_MS, None, b"v")]), BatchRules(MAX), 0)
    assert info.max_timestamp_ms == NEWEST_MS


CORRUPT = {
    "one byte": BATCH[:1],
    "no header": BATCH[:60],
    "header alone": BATCH[:61],
    "cut short": BATCH[:-1],
    "left over": BATCH + b"x",
    "left over, long": BATCH + bytes(70),
    "wrong crc": changed(sealed=False, crc=1),
    "flipped bit": BATCH[:-1] + bytes([BATCH[-1] ^ 1]),
    "magic 3": changed(magic=3),
    "magic -1": changed(magic=-1),
    "length 0": changed(length=0),
    "length 48": changed(length=48),
    "length negative": changed(length=-1),
    "length beyond": changed(length=len(BATCH)),
}


@pytest.mark.parametrize("data", CORRUPT.values(), ids=CORRUPT)
def test_broken_frames_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecords):
        check(data)


def _record(rest: bytes) -> bytes:
    return varint(len(rest)) + rest


def _lying(rest: bytes) -> bytes:
    """A batch of one record with this content."""
    return frame(_record(rest), [Row(0, 5, None, None)])


GOOD = b"\x00\x00\x00" + body(Row(0, 5, b"kk", b"vv", ((b"h", b"v"),)))
INVALID = {
    "nothing": b"",
    "two batches": BATCH * 2,
    "count 0": changed(count=0),
    "count negative": changed(count=-3),
    "count too high": changed(count=4),
    "count too low": changed(count=2),
    "count and delta too high": changed(count=4, last_delta=3),
    "count and delta too low": changed(count=2, last_delta=1),
    "count huge": changed(count=2**31 - 1, last_delta=2**31 - 2),
    "delta too high": changed(last_delta=7),
    "delta negative": changed(last_delta=-1),
    "control": control_batch(0, 0),
    "transactional": changed(attributes=0x10),
    "producer without sequence": changed(producer_id=4, epoch=0, sequence=-1),
    "producer without epoch": changed(producer_id=4, epoch=-1, sequence=0),
    "deltas with a hole": batch([Row(0, 1, None, b"a"), Row(2, 1, None, b"b")]),
    "record longer than batch": frame(b"\x7e" + GOOD, [Row(0, 5, None, None)]),
    "record length negative": frame(varint(-1) + GOOD, [Row(0, 5, None, None)]),
    "record length unending": frame(b"\xff" * 12, [Row(0, 5, None, None)]),
    "bytes after the record": _lying(GOOD + b"\x00"),
    "bytes after the records": frame(_record(GOOD) + b"\x00", [Row(0, 5, None, None)]),
    "key beyond": _lying(b"\x00\x00\x00" + varint(500) + b"k" + b"\x01\x00"),
    "key length below null": _lying(b"\x00\x00\x00" + varint(-2) + b"\x01\x00"),
    "value beyond": _lying(b"\x00\x00\x00\x01" + varint(2**31 - 1) + b"\x00"),
    "no value": _lying(b"\x00\x00\x00\x01" + b"\x80\x80\x80"),
    "header count negative": _lying(b"\x00\x00\x00\x01\x01" + varint(-1)),
    "header count huge": _lying(b"\x00\x00\x00\x01\x01" + varint(2**30)),
    "header key null": _lying(b"\x00\x00\x00\x01\x01" + varint(1) + varint(-1) + varint(-1)),
    "header value beyond": _lying(b"\x00\x00\x00\x01\x01" + varint(1) + b"\x02h" + varint(9)),
    "varint of 33 bits": _lying(b"\x00\x00\x00" + b"\xff\xff\xff\xff\x1f" + b"\x01\x00"),
    "varlong of 65 bits": _lying(b"\x00" + b"\xff" * 9 + b"\x02" + b"\x00\x01\x01\x00"),
    "not gzip": changed(attributes=1),
    "not snappy": changed(attributes=2),
    "not lz4": changed(attributes=3),
    "not zstd": changed(attributes=4),
}


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID)
def test_lies_under_a_valid_checksum_are_invalid(data: bytes) -> None:
    with pytest.raises(InvalidRecords) as caught:
        check(data)
    assert not isinstance(caught.value, InvalidTimestamp)


def test_the_good_record_of_those_lies_is_taken() -> None:
    check(_lying(GOOD))


TIMES = {
    "base below": changed(base_timestamp=-2),
    "base above": changed(base_timestamp=NEWEST_MS + 1),
    "max above": changed(max_timestamp=NEWEST_MS + 1),
    "max below": changed(max_timestamp=-2),
    "record below": batch([Row(0, 5, None, b"v"), Row(1, -2, None, b"v")]),
    "record above": changed(batch([Row(0, 5, None, b"v"), Row(1, NEWEST_MS + 1, None, b"v")]), max_timestamp=NEWEST_MS),
    "delta overflows": _lying(b"\x00" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00\x01\x01\x00"),
    "append time": changed(attributes=0x08),
}


@pytest.mark.parametrize("data", TIMES.values(), ids=TIMES)
def test_times_that_no_table_holds(data: bytes) -> None:
    with pytest.raises(InvalidTimestamp):
        check(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_magics_are_not_served(magic: int) -> None:
    with pytest.raises(UnsupportedRecords):
        check(changed(magic=magic))
    old = struct.pack(">qiIbb", 0, 14, 0, magic, 0) + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x00"
    with pytest.raises(UnsupportedRecords):
        check(old)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_not_served(codec: int) -> None:
    with pytest.raises(UnsupportedRecords):
        check(changed(attributes=codec))


def test_the_maximum_counts_the_whole_batch() -> None:
    validate(BATCH, BatchRules(len(BATCH)), 0)
    with pytest.raises(RecordsTooLarge):
        validate(BATCH, BatchRules(len(BATCH) - 1), 0)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_too_large(codec: int) -> None:
    plain = bytes(MAX_DECOMPRESSED_BYTES + 100)
    packed = {
        1: cramjam.gzip.compress,
        2: cramjam.snappy.compress_raw,
        3: cramjam.lz4.compress,
        4: cramjam.zstd.compress,
    }[codec](plain)
    with pytest.raises(RecordsTooLarge):
        validate(frame(bytes(packed), ROWS, attributes=codec), BatchRules(1 << 30), 0)


XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@pytest.mark.parametrize(
    "packed",
    [
        XERIAL,
        XERIAL + b"\x00",
        XERIAL + struct.pack(">i", -1),
        XERIAL + struct.pack(">i", 50) + b"x",
        b"",
        b"\x82SNAPPY\x00",
    ],
)
def test_broken_xerial_streams(packed: bytes) -> None:
    with pytest.raises(InvalidRecords):
        check(frame(packed, ROWS, attributes=2))


def test_xerial_blocks_are_joined() -> None:
    plain = b"".join(_record(b"\x00\x00" + varint(index) + body(row)) for index, row in enumerate(ROWS))
    blocks = [bytes(cramjam.snappy.compress_raw(plain[start : start + 7])) for start in range(0, len(plain), 7)]
    packed = XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    check(frame(packed, ROWS, attributes=2))


@examples(300, derandomize=True)
@given(st.data())
def test_no_mutation_is_more_than_an_error(data: st.DataObject) -> None:
    """Under a valid checksum, so that the deep checks see it; a batch that is taken is one that walks."""
    compression = data.draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4]))
    altered = bytearray(client_batch(b"abc", None, b"x" * 40, compression=compression, key=b"k", headers=[("h", b"v")]))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(21, len(altered) - 1))
        altered[position] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(61, len(altered)))
    if cut is not None:
        del altered[cut:]
        struct.pack_into(">i", altered, 8, len(altered) - 12)
    try:
        info = validate(resealed(altered), BatchRules(MAX), 0)
    except RequestError:
        return
    assert info.record_count == info.last_offset_delta + 1 > 0


@examples(200, derandomize=True)
@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_an_error(data: bytes) -> None:
    with pytest.raises(RequestError):
        check(data)
    if data:
        with pytest.raises(CorruptRecords):
            walk(data)
