"""Decode and encode against two independent implementations: aiokafka's builders and a plain twin of the format."""

import struct
from itertools import pairwise

import cramjam
import google_crc32c
import numpy as np
import pytest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy
from hypothesis import given
from hypothesis import strategies as st
from support.clients.twin import Row, batch, body, frame, rows_of, signed_crc, varint
from support.properties import examples

from lakestream.errors import CorruptObject, CorruptRecords
from lakestream.records import Arena, Columns, Encoder, Run, control_batch, crc32c, decode, encode, stamp, walk

NEWEST_MS = 253_402_300_799_999
quick = examples(60, derandomize=True)
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def decoded(*runs: tuple[int, bytes], arena_bytes: int = 1 << 16) -> list[Row]:
    arena = Arena(arena_bytes)
    return [row for columns in decode([Run(0, base, data) for base, data in runs], arena) for row in rows_of(columns)]


binary = st.binary(max_size=40)
header_key = st.one_of(
    st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=6)
)


@st.composite
def row_lists(draw: st.DrawFn, *, gaps: bool = True) -> list[Row]:
    offset = draw(st.integers(0, 2**40))
    rows = []
    for _ in range(draw(st.integers(1, 12))):
        rows.append(
            Row(
                offset,
                draw(
                    st.one_of(st.just(-1), st.integers(0, NEWEST_MS), st.integers(1_700_000_000_000, 1_700_000_000_999))
                ),
                draw(st.none() | binary),
                draw(st.none() | binary | st.integers(100, 3000).map(bytes)),
                tuple(draw(st.lists(st.tuples(header_key, st.none() | binary), max_size=3))),
            )
        )
        offset += draw(st.integers(1, 3)) if gaps else 1
    return rows


@quick
@given(row_lists())
def test_decode_gives_what_the_twin_wrote(rows: list[Row]) -> None:
    arena = Arena(1 << 16)
    (columns,) = decode([Run(3, rows[0].offset, batch(rows))], arena)
    assert list(rows_of(columns)) == rows
    assert columns.partition.tolist() == [3] * len(rows)
    assert columns.crc.tolist() == [signed_crc(body(row)) for row in rows]


@quick
@given(row_lists())
def test_encode_gives_the_twins_bytes(rows: list[Row]) -> None:
    (columns,) = decode([Run(0, rows[0].offset, batch(rows))], Arena(1 << 16))
    assert bytes(encode(columns)) == batch(rows)


@quick
@given(row_lists(), st.sets(st.integers(0, 12)), st.integers(1, 600), st.integers(1, 5), st.integers(1, 2000))
def test_encode_in_pieces_loses_and_repeats_nothing(
    rows: list[Row], cuts: set[int], batch_bytes: int, batch_records: int, max_bytes: int
) -> None:
    """Of one set of columns, or of several joined, empty ones among them."""
    (columns,) = decode([Run(0, rows[0].offset, batch(rows))], Arena(1 << 16))
    encoder = _joined(columns, cuts)
    assert encoder.offsets.tolist() == [row.offset for row in rows]
    row, seen = 0, []
    while row < len(rows):
        out, after = encoder.encode(
            row, len(rows), max_bytes=max_bytes, batch_bytes=batch_bytes, batch_records=batch_records
        )
        infos = walk(out)
        assert after > row
        assert sum(info.record_count for info in infos) == after - row
        if after - row > 1:
            assert len(out) <= max_bytes
        for info in infos:
            assert info.record_count <= batch_records
            assert info.record_count == 1 or info.length <= batch_bytes
            data = out[info.position : info.position + info.length]
            seen += decoded((struct.unpack_from(">q", data)[0], bytes(data)))
        row = after
    assert seen == rows


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@quick
@given(row_lists(gaps=False))
def test_every_compression(codec: int, rows: list[Row]) -> None:
    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, -1, 1 << 20)
    for index, row in enumerate(rows):
        headers = [(key.decode("latin-1"), value) for key, value in row.headers]
        builder.append(index, row.timestamp_ms, row.key, row.value, headers)
    run = bytes(builder.build())
    expected = [
        Row(
            77 + index,
            row.timestamp_ms,
            row.key,
            row.value,
            tuple((key.decode("latin-1").encode(), value) for key, value in row.headers),
        )
        for index, row in enumerate(rows)
    ]
    assert decoded((77, run)) == expected


@quick
@given(row_lists(gaps=False))
def test_another_reader_reads_what_we_encode(rows: list[Row]) -> None:
    rows = [Row(row.offset, row.timestamp_ms, row.key, row.value, ()) for row in rows]
    (columns,) = decode([Run(0, rows[0].offset, batch(rows))], Arena(1 << 16))
    theirs = _DefaultRecordBatchPy(bytearray(encode(columns)))
    assert theirs.validate_crc()
    assert [Row(r.offset, r.timestamp, r.key, r.value) for r in theirs] == rows


def test_raw_snappy_is_read_too() -> None:
    rows = [Row(0, 1, b"k", b"v" * 500)]
    record = b"\x00\x00\x00" + body(rows[0])
    plain = varint(len(record)) + record
    run = frame(bytes(cramjam.snappy.compress_raw(plain)), rows, attributes=2)
    assert decoded((0, run)) == rows


def test_runs_are_numbered_densely_and_control_batches_become_no_rows() -> None:
    first = [Row(index, 5, None, b"x") for index in range(3)]
    run = batch(first) + control_batch(900, 903) + batch(first)
    offsets = [row.offset for row in decoded((100, run), (500, batch(first)))]
    assert offsets == [100, 101, 102, 107, 108, 109, 500, 501, 502]


def test_the_arena_is_filled_again_and_again_and_grows_for_one_large_batch() -> None:
    small = batch([Row(index, 5, b"k", bytes([index]) * 300) for index in range(3)])
    large = batch([Row(0, 5, b"k", b"L" * 10_000)])
    arena = Arena(2048)
    fills, rows = 0, []
    for columns in decode([Run(0, 0, small * 4), Run(0, 12, large), Run(0, 13, small)], arena):
        fills += 1
        rows += list(rows_of(columns))
    assert [row.offset for row in rows] == list(range(16))
    assert rows[12].value == b"L" * 10_000
    assert fills >= 4
    assert arena.capacity_bytes <= 10_100


def test_a_large_fill_holds_one_partition() -> None:
    data = batch([Row(index, 5, None, bytes(700_000)) for index in range(2)])
    fills = [
        set(columns.partition.tolist())
        for columns in decode([Run(0, 0, data), Run(1, 0, data), Run(2, 0, data)], Arena())
    ]
    assert fills == [{0}, {1}, {2}]


def test_broker_time_comes_from_the_header_and_goes_back_there() -> None:
    rows = [Row(10 + index, 77, None, b"v", timestamp_type=1) for index in range(3)]
    (columns,) = decode([Run(0, 10, batch(rows))], Arena(1 << 12))
    assert list(rows_of(columns)) == rows
    assert bytes(encode(columns)) == batch(rows)
    columns.timestamp_ms[2] = 78
    assert [info.max_timestamp_ms for info in walk(encode(columns))] == [77, 78]


def test_long_forms_of_numbers_are_stored_in_their_shortest() -> None:
    long_zero, long_two = b"\x80\x00", b"\x84\x80\x00"
    odd = long_two + b"kk" + long_zero + long_two + b"\x82\x00" + b"h" + long_zero + b"\x02" + b"\xff" + b"\x01"
    plain = Row(0, 5, b"kk", b"", ((b"h", b""), (b"\xff", None)))
    record = b"\x00\x00\x00" + odd
    run = frame(varint(len(record)) + record, [plain])
    (columns,) = decode([Run(0, 0, run)], Arena(1 << 12))
    assert list(rows_of(columns)) == [plain]
    assert columns.crc.tolist() == [signed_crc(body(plain))]
    assert bytes(encode(columns)) == batch([plain])


def test_header_keys_that_are_text_become_columns_others_stay_raw() -> None:
    keys = [
        b"",
        b"ascii",
        "é€😀".encode(),
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\xf0\x8f\xbf\xbf",
    ]
    rows = [Row(index, 1, None, None, ((key, b"v"),)) for index, key in enumerate(keys)]
    (columns,) = decode([Run(0, 0, batch(rows))], Arena(1 << 12))
    assert columns.headers_raw.valid.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert list(rows_of(columns)) == rows


def test_a_batch_spans_no_more_than_its_deltas_can_say() -> None:
    rows = [Row(0, 1, None, b"a"), Row(2**31 - 1, 1, None, b"b"), Row(2**31 + 5, 1, None, b"c")]
    columns = _columns(rows)
    infos = walk(encode(columns))
    assert [(info.record_count, info.last_offset_delta) for info in infos] == [(2, 2**31 - 1), (1, 0)]


def _columns(rows: list[Row]) -> Columns:
    """Columns at any offsets."""
    dense = [Row(index, row.timestamp_ms, row.key, row.value, row.headers) for index, row in enumerate(rows)]
    (columns,) = decode([Run(0, 0, batch(dense))], Arena(1 << 16))
    columns.offset[:] = [row.offset for row in rows]
    return columns


@pytest.mark.parametrize("change", ["value", "crc", "header"])
def test_a_record_that_is_not_what_it_was_is_an_alarm(change: str) -> None:
    columns = _columns([Row(40, 1, b"k", b"value", ((b"h", b"v"),)), Row(41, 1, b"k", b"value", ((b"h", b"v"),))])
    if change == "value":
        columns.value.data[-1 + columns.value.offsets[-1]] ^= 1
    elif change == "crc":
        columns.crc[1] ^= 1
    else:
        columns.header_value.valid[1] = 0
    with pytest.raises(CorruptObject, match="offset 41"):
        encode(columns)


def _joined(columns: Columns, cuts: set[int]) -> Encoder:
    bounds = [0, *sorted(min(cut, len(columns)) for cut in cuts), len(columns)]
    return Encoder.joined([Encoder(columns.slice(start, stop)) for start, stop in pairwise(bounds)])


@quick
@given(row_lists(), st.sets(st.integers(0, 12)), st.integers(0, 11))
def test_a_changed_record_is_named_whichever_piece_it_is_in(rows: list[Row], cuts: set[int], changed: int) -> None:
    (columns,) = decode([Run(0, rows[0].offset, batch(rows))], Arena(1 << 16))
    changed %= len(rows)
    columns.crc[changed] ^= 1
    encoder = _joined(columns, cuts)
    with pytest.raises(CorruptObject, match=f"offset {rows[changed].offset} "):
        encoder.encode(0, len(rows), max_bytes=1 << 20)
    if changed:
        out, after = encoder.encode(0, changed, max_bytes=1 << 20)
        assert after == changed
        assert sum(info.record_count for info in walk(out)) == changed


def test_an_offset_of_two_pieces_is_an_alarm() -> None:
    encoders = [Encoder(_columns([Row(offset, 1, None, b"a")])) for offset in (40, 41, 41)]
    with pytest.raises(CorruptObject, match="offset 41"):
        Encoder.joined(encoders).encode(0, 3, max_bytes=1 << 20)
    assert Encoder.joined([]).encode(0, 0, max_bytes=1 << 20) == (b"", 0)


@pytest.mark.parametrize("batch_records", [1, 10])
def test_an_offset_that_stands_twice_is_an_alarm(batch_records: int) -> None:
    columns = _columns([Row(40, 1, None, b"a"), Row(41, 1, None, b"b")])
    columns.offset[1] = 40
    with pytest.raises(CorruptObject, match="offset 40"):
        encode(columns, batch_records=batch_records)


def test_rows_are_encoded_in_the_order_asked_for() -> None:
    columns = _columns([Row(9, 1, None, b"9"), Row(4, 1, None, b"4"), Row(7, 1, None, b"7")])
    encoder = Encoder(columns, np.array([1, 2, 0]))
    assert encoder.offsets.tolist() == [4, 7, 9]
    out, after = encoder.encode(1, 3, max_bytes=1 << 20)
    assert after == 3
    assert [row.offset for row in decoded((7, bytes(out)))] == [7, 9]


def test_split_cuts_at_partitions_and_windows() -> None:
    columns = _columns([Row(offset, 1, None, b"%d" % offset) for offset in (8, 9, 10, 11, 30)])
    columns.partition[:] = [0, 0, 0, 1, 1]
    parts = [(partition, window, part.offset.tolist()) for partition, window, part in columns.split(10)]
    assert parts == [(0, 0, [8, 9]), (0, 10, [10]), (1, 10, [11]), (1, 30, [30])]
    (_, _, part) = list(columns.split(10))[1]
    assert [row.value for row in rows_of(part)] == [b"10"]
    assert bytes(encode(part)) == batch([Row(10, 1, None, b"10")])


def test_stamp_numbers_in_place_and_keeps_the_checksum() -> None:
    rows = [Row(index, 5, None, b"x") for index in range(3)]
    run = bytearray(batch(rows, base_offset=999) * 2)
    run[12:16] = b"\x00\x00\x00\x09"
    assert stamp(run, 50) == 56
    assert [struct.unpack_from(">qii", run, info.position)[::2] for info in walk(run)] == [(50, 0), (53, 0)]
    assert [row.offset for row in decoded((50, bytes(run)))] == list(range(50, 56))
    assert stamp(memoryview(run), 2**62) == 2**62 + 6
    with pytest.raises(TypeError):
        stamp(memoryview(bytes(run)), 0)
    with pytest.raises(CorruptRecords):
        stamp(run[:-1], 0)


@pytest.mark.parametrize(("first", "last"), [(5, 5), (10, 300), (0, 2**31 - 1), (7, 2**40)])
def test_a_control_batch_covers_a_gap(first: int, last: int) -> None:
    data = control_batch(first, last)
    (info,) = walk(data)
    (base,) = struct.unpack_from(">q", data)
    assert base + info.last_offset_delta == last
    assert base == max(first, last - (2**31 - 1))
    theirs = _DefaultRecordBatchPy(bytearray(data))
    assert theirs.is_control_batch
    assert theirs.validate_crc()
    (record,) = theirs
    assert (record.offset, record.key[:4], theirs.producer_id) == (last, b"\x00\x00\x00\x01", -1)


@quick
@given(st.binary(max_size=5000), st.binary(max_size=100))
def test_crc_equals_the_reference(data: bytes, more: bytes) -> None:
    assert crc32c(data) == google_crc32c.value(data)
    assert crc32c(memoryview(more), crc32c(bytearray(data))) == google_crc32c.value(data + more)
