"""Our Parquet files beside Arrow's of the same rows, read by every engine at hand."""

import io
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.tables import foreign as lake
from support.tables.former import former

from lakestream.records import crc32c
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.parquet.compression import DEFAULT_COMPRESSION, Compression
from lakestream.table.parquet.file import ParquetFile
from lakestream.table.parquet.metrics import file_metrics
from lakestream.table.parquet.seal import chunk_checksums, chunk_range, seal, sealed_name
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.shape import RAW

MICROS = pa.timestamp("us", tz="UTC")
blobs = st.binary(max_size=12)
entry = st.none() | st.fixed_dictionaries({"key": st.none() | st.text(max_size=4), "value": st.none() | blobs})
row = st.fixed_dictionaries(
    {
        "_stream_partition": st.integers(0, 3),
        "_offset": st.integers(0, 1 << 62),
        "_timestamp": st.none() | st.integers(0, 253_402_300_799_999_000),
        "_timestamp_type": st.integers(0, 1),
        "_kind": st.integers(0, 3),
        "_key": st.none() | blobs,
        "_headers": st.none() | st.lists(entry, max_size=3),
        "_headers_raw": st.none() | blobs,
        "_value": st.none() | blobs,
        "_schema_id": st.none() | st.integers(-5, 1 << 30),
        "_crc": st.integers(-(1 << 31), (1 << 31) - 1),
    }
)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    def column(field: pa.Field) -> pa.Array:
        return pa.array([row[field.name] for row in rows], field.type)

    return pa.Table.from_arrays([column(field) for field in arrow_schema(RAW)], schema=arrow_schema(RAW))


def ours(groups: list[pa.Table], compression: Compression = DEFAULT_COMPRESSION) -> bytes:
    sink = io.BytesIO()
    file = ParquetFile(sink, RAW, compression)
    for group in groups:
        file.write(group)
    closed = file.close()
    data = sink.getvalue()
    assert closed.footer_checksum == crc32c(data[-8 - int.from_bytes(data[-8:-4], "little") :])
    assert closed.metrics == file_metrics(pq.read_metadata(io.BytesIO(data)), RAW)
    assert file.size_bytes == len(data)
    return data


def read(data: bytes) -> pa.Table:
    return pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).read()


def check_seal(data: bytes, metadata: pq.FileMetaData) -> None:
    """The footer holds CRC32C of every chunk as it is in the file."""
    chunks = [
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    ]
    found = tuple(crc32c(data[slice(*chunk_range(chunk))]) for chunk in chunks)
    assert chunk_checksums(sealed_name("t.parquet", 0), metadata) == found


def test_a_key_that_looks_like_the_room_for_checksums_stays_what_it_is() -> None:
    """It is a bound, so it stands in the footer, too."""
    [(_, room)] = seal([0] * 12).items()
    rows = lake.table([1]).set_column(5, arrow_schema(RAW).field("_key"), pa.array([room.encode()], pa.binary()))
    data = ours([rows])
    check_seal(data, pq.read_metadata(io.BytesIO(data)))
    assert read(data)["_key"].to_pylist() == [room.encode()]


def bounds(data: bytes) -> list[object]:
    """Of every column chunk what its statistics say."""
    metadata = pq.read_metadata(io.BytesIO(data))
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    chunks = [group.column(index) for group in groups for index in range(metadata.num_columns)]
    return [
        chunk.statistics
        and (
            chunk.statistics.null_count,
            (chunk.statistics.min_raw, chunk.statistics.max_raw) if chunk.statistics.has_min_max else None,
        )
        for chunk in chunks
    ]


@examples(200)
@given(groups=st.lists(st.lists(row, min_size=1, max_size=40), min_size=1, max_size=3))
def test_arrow_reads_what_was_written(groups: list[list[dict[str, Any]]]) -> None:
    """Whatever is null or empty. Schema and bounds are those of former files, and every chunk has its checksum."""
    tables = [table(rows) for rows in groups]
    data = ours(tables)
    assert read(data).equals(pa.concat_tables(tables))
    theirs, _ = former(tables)
    mine, other = (pq.read_metadata(io.BytesIO(file)) for file in (data, theirs))
    assert mine.schema.equals(other.schema)
    assert pq.read_schema(io.BytesIO(data)).remove_metadata().equals(arrow_schema(RAW), check_metadata=True)
    check_seal(data, mine)
    assert bounds(data) == bounds(theirs)
    assert [mine.row_group(index).num_rows for index in range(mine.num_row_groups)] == [*map(len, groups)]


def wide(rows: int, value_bytes: int) -> pa.Table:
    """Enough for several pages of every kind, with and without nulls."""
    rng = np.random.default_rng(1)
    made = [
        {
            "_stream_partition": index // 1000,
            "_offset": index,
            "_timestamp": None if index % 7 == 0 else 1_700_000_000_000_000 + index * 1000,
            "_timestamp_type": 0,
            "_kind": 0,
            "_key": None if index % 5 == 0 else b"key-%d" % index,
            "_headers": [{"key": "h", "value": b"%d" % index}] * (index % 3) or None,
            "_headers_raw": None,
            "_value": None if index % 11 == 0 else rng.bytes(value_bytes),
            "_schema_id": None,
            "_crc": int(rng.integers(-(1 << 31), 1 << 31)),
        }
        for index in range(rows)
    ]
    return table(made)


@pytest.mark.parametrize("codec", ["zstd", "gzip", "brotli", "snappy", "lz4", "none"])
def test_every_engine_reads_it(codec: str, tmp_path: Path) -> None:
    rows = wide(4000, 700)
    path = tmp_path / "t.parquet"
    path.write_bytes(ours([rows, rows], Compression(codec, None)))
    whole = pa.concat_tables([rows, rows])
    assert read(path.read_bytes()).equals(whole)
    columns = ["_offset", "_key", "_value", "_crc", "_headers", "_timestamp", "_stream_partition"]
    want = whole.select(columns).to_pylist()
    duck = duckdb.sql(f"SELECT {', '.join(columns)} FROM '{path}'").to_arrow_table()
    assert duck.set_column(5, "_timestamp", duck.column("_timestamp").cast(MICROS)).to_pylist() == want
    assert pl.read_parquet(path, columns=columns).select(columns).to_arrow().to_pylist() == want
    fusion = SessionContext()
    fusion.register_parquet("t", str(path))
    batches = fusion.sql(f"SELECT {', '.join(columns)} FROM t").collect()
    found = pa.Table.from_batches(batches).to_pylist()
    assert sorted(found, key=lambda row: row["_offset"]) == sorted(want, key=lambda row: row["_offset"])


def test_checksums_are_left_as_they_are() -> None:
    """They do not get smaller, however hard one tries."""
    metadata = pq.read_metadata(io.BytesIO(ours([wide(200, 10)])))
    found = {metadata.row_group(0).column(at).path_in_schema: metadata.row_group(0).column(at) for at in range(12)}
    assert found["_crc"].compression == "UNCOMPRESSED"
    assert found["_value"].compression == "ZSTD"


def test_a_long_key_is_no_bound() -> None:
    rows = lake.table([1])
    long = rows.set_column(5, arrow_schema(RAW).field("_key"), pa.array([b"k" * 5000], pa.binary()))
    [about] = [bounds(ours([long]))[5]]
    assert about == (0, None)


def test_rows_of_another_shape_are_refused() -> None:
    writer = StreamFileWriter(io.BytesIO(), RAW)
    with pytest.raises(ValueError, match="not what this file is for"):
        writer.write_rows(lake.table([1]).drop_columns(["_crc"]))
    required = arrow_schema(RAW).get_field_index("_crc")
    with pytest.raises(ValueError, match="non-nullable"):
        writer.write_rows(
            lake.table([1]).set_column(required, arrow_schema(RAW).field(required), pa.array([None], pa.int32()))
        )


def test_files_of_former_versions_differ_in_nothing_that_is_read() -> None:
    rows = lake.table(range(50))
    data, _ = former([rows])
    assert read(data).equals(read(ours([rows])))


def test_a_column_without_rules_has_no_statistics() -> None:
    assert [about is None for about in bounds(ours([lake.table([1])]))][9:] == [True, True, True]
