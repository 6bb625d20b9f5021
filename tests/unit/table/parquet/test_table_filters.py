"""Bloom filters of keys: in every file, folded to what there is, under checksums, understood by other engines."""

import io
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from support.clients.twin import Row, batch

from lakestream.records import Arena, Columns, Run, decode
from lakestream.table.parquet.filters import FilterPlace, KeyFilter, filter_places, key_hash, parse_filter
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.shape import RAW


def columns_of(keys: list[bytes | None], first: int = 0) -> Columns:
    rows = [Row(first + number, 1_000, key, b"v") for number, key in enumerate(keys)]
    [columns] = decode([Run(0, first, batch(rows))], Arena(1 << 22))
    return columns


def written(*groups: list[bytes | None]) -> bytes:
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, RAW)
    first = 0
    for keys in groups:
        writer.write(columns_of(keys, first))
        first += len(keys)
    writer.close()
    return sink.getvalue()


def filters_in(data: bytes) -> list[KeyFilter | None]:
    places = filter_places(pq.read_metadata(io.BytesIO(data)), "_key")
    return [parsed(data, place) for place in places]


def parsed(data: bytes, place: FilterPlace) -> KeyFilter | None:
    return parse_filter(memoryview(data)[place.start : place.end], place.checksum)


def test_a_filter_knows_its_keys_and_hardly_any_other() -> None:
    groups: list[list[bytes | None]] = [[b"a%d" % number for number in range(3000)], [b"b%d" % n for n in range(40)]]
    groups[1][7] = None
    first, second = filters_in(written(*groups))
    assert first is not None
    assert second is not None
    assert all(first.may_hold(key_hash(key)) for key in groups[0] if key is not None)
    assert all(second.may_hold(key_hash(key)) for key in groups[1] if key is not None)
    wrong = sum(first.may_hold(key_hash(b"x%d" % number)) for number in range(20_000))
    assert wrong < 20_000 * 0.02
    assert not second.may_hold(key_hash(b"a1"))


@pytest.mark.parametrize("keys", [[b"k"], [b""], [None], [b"same"] * 5000])
def test_filters_are_as_small_as_their_keys_are_few(keys: list[bytes | None]) -> None:
    [found] = filters_in(written(keys))
    assert found is not None
    assert found.size_bytes <= 64
    assert found.may_hold(key_hash(keys[0])) if keys[0] is not None else not found.may_hold(key_hash(b"k"))


def test_a_damaged_filter_is_none() -> None:
    data = bytearray(written([b"k%d" % number for number in range(500)]))
    [place] = filter_places(pq.read_metadata(io.BytesIO(data)), "_key")
    for at in range(place.start, place.end, 7):
        data[at] ^= 0x10
        assert parsed(bytes(data), place) is None
        data[at] ^= 0x10
    assert parsed(bytes(data), place) is not None


def test_files_without_checksums_of_filters_have_none_to_trust() -> None:
    rows = pq.read_table(io.BytesIO(written([b"k"]))).replace_schema_metadata(None)
    sink = io.BytesIO()
    pq.write_table(rows, sink, bloom_filter_options={"_key": True})
    metadata = pq.read_metadata(sink)
    assert metadata.row_group(0).column(5).bloom_filter_length
    assert filter_places(metadata, "_key") == ()
    assert filter_places(pq.read_metadata(io.BytesIO(written([b"k"]))), "_value") == ()


def test_duckdb_leaves_row_groups_out_by_them(tmp_path: Path) -> None:
    path = tmp_path / "keys.parquet"
    path.write_bytes(written(*([b"%d-%d" % (group, number) for number in range(500)] for group in range(4))))
    probe = (
        f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{path}', '_key', '2-77'::BLOB) ORDER BY row_group_id"
    )
    assert [excludes for (excludes,) in duckdb.sql(probe).fetchall()] == [True, True, False, True]
