"""What a written file holds and says of itself."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from support.clients.twin import Row, batch

from lakestream.records import Arena, Columns, Run, decode
from lakestream.table.parquet.arrow import arrow_schema, from_arrow, to_arrow
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import RAW

ROWS = [
    Row(5, 1_000, b"k", b"v", ((b"h", b"x"), ("é".encode(), None))),
    Row(6, -1, None, None),
    Row(7, 253_402_300_799_999, b"", b"", ((b"\xff", b"raw"),)),
]


def columns_of(rows: list[Row], partition: int = 0) -> Columns:
    (columns,) = decode([Run(partition, rows[0].offset, batch(rows))], Arena(1 << 14))
    return columns


def written(*fills: Columns) -> bytes:
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, RAW)
    for fill in fills:
        writer.write(fill)
    writer.close()
    return sink.getvalue()


def test_the_schema_is_icebergs_but_for_the_width_of_offsets() -> None:
    def narrow(field: pa.Field) -> tuple[object, ...]:
        kind = field.type
        children = [kind.field(index) for index in range(kind.num_fields)]
        text = str(kind).replace("large_", "") if not children else type(kind).__name__.replace("Large", "")
        return field.name, field.nullable, field.metadata, text, [narrow(child) for child in children]

    theirs = schema_to_pyarrow(iceberg_schema(RAW), include_field_ids=True)
    assert [narrow(field) for field in arrow_schema(RAW)] == [narrow(field) for field in theirs]


def test_rows_are_what_the_records_were() -> None:
    rows = pq.read_table(io.BytesIO(written(columns_of(ROWS, 3))))
    assert rows.column("_stream_partition").to_pylist() == [3, 3, 3]
    assert rows.column("_offset").to_pylist() == [5, 6, 7]
    assert rows.column("_timestamp").cast(pa.int64()).to_pylist() == [1_000_000, None, 253_402_300_799_999_000]
    assert rows.column("_kind").to_pylist() == [0, 1, 0]
    assert rows.column("_key").to_pylist() == [b"k", None, b""]
    assert rows.column("_value").to_pylist() == [b"v", None, b""]
    assert rows.column("_headers").to_pylist() == [
        [{"key": "h", "value": b"x"}, {"key": "é", "value": None}],
        None,
        None,
    ]
    assert rows.column("_headers_raw").to_pylist() == [None, None, b"\x02\x02\xff\x06raw"]
    assert rows.column("_schema_id").null_count == 3


def test_field_ids_and_encodings() -> None:
    metadata = pq.ParquetFile(io.BytesIO(written(columns_of(ROWS)))).metadata
    group = metadata.row_group(0)
    chunks = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
    deltas = {name for name, chunk in chunks.items() if "DELTA_BINARY_PACKED" in chunk.encodings}
    assert deltas == {"_offset", "_timestamp"}
    few = {name for name, chunk in chunks.items() if chunk.has_dictionary_page}
    assert few == {"_stream_partition", "_timestamp_type", "_kind", "_schema_id"}
    assert {chunk.compression for name, chunk in chunks.items() if name != "_crc"} == {"ZSTD"}
    assert chunks["_offset"].statistics.min == 5
    assert chunks["_value"].statistics is None
    schema = metadata.schema.to_arrow_schema()
    assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [
        b"%d" % field.field_id for field in iceberg_schema(RAW).fields
    ]
    element = schema.field("_headers").type.value_field
    assert [
        element.metadata[b"PARQUET:field_id"],
        *(child.metadata[b"PARQUET:field_id"] for child in element.type),
    ] == [
        b"8",
        b"9",
        b"10",
    ]


def test_the_statistics_of_a_file_of_several_partitions() -> None:
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, RAW)
    writer.write(columns_of(ROWS[:2], 1))
    writer.write(columns_of([Row(2, 400, None, b"z")], 4))
    stats = writer.close()
    assert (stats.record_count, stats.partition_min, stats.partition_max) == (3, 1, 4)
    assert (stats.offset_min, stats.offset_max, stats.timestamp_max_ms) == (2, 6, 1000)
    assert stats.size_bytes == len(sink.getvalue())
    assert pq.ParquetFile(io.BytesIO(sink.getvalue())).metadata.num_row_groups == 2


def test_no_time_at_all_is_none() -> None:
    writer = StreamFileWriter(io.BytesIO(), RAW)
    writer.write(columns_of([Row(0, -1, None, b"v")]))
    assert writer.close().timestamp_max_ms is None


def test_order_is_kept_or_refused() -> None:
    writer = StreamFileWriter(io.BytesIO(), RAW)
    writer.write(columns_of(ROWS, 2))
    for late in (columns_of(ROWS[2:], 2), columns_of([Row(9, 1, None, None)], 1)):
        with pytest.raises(ValueError, match="order"):
            writer.write(late)
    backwards = columns_of([Row(10, 1, None, None), Row(11, 1, None, None)], 2)
    backwards.offset[:] = [11, 10]
    with pytest.raises(ValueError, match="order"):
        writer.write(backwards)
    writer.write(columns_of([Row(0, 1, None, None)], 3))
    assert writer.close().record_count == 4


def test_an_empty_file_is_refused() -> None:
    writer = StreamFileWriter(io.BytesIO(), RAW)
    writer.write(columns_of(ROWS).slice(1, 1))
    with pytest.raises(ValueError, match="records"):
        writer.close()


def test_the_arena_may_be_filled_again_after_a_write() -> None:
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, RAW)
    runs = [Run(0, 10 * index, batch([Row(0, index, b"k%d" % index, b"v%d" % index * 50)])) for index in range(40)]
    fills = 0
    for columns in decode(runs, Arena(500)):
        writer.write(columns)
        fills += 1
    writer.close()
    assert fills > 3
    rows = pq.read_table(io.BytesIO(sink.getvalue()))
    assert rows.column("_value").to_pylist() == [b"v%d" % index * 50 for index in range(40)]
    assert rows.column("_key").to_pylist() == [b"k%d" % index for index in range(40)]


def test_slices_are_written_like_wholes() -> None:
    columns = columns_of([Row(index, index, b"k%d" % index, b"v", ((b"h%d" % index, b"x"),)) for index in range(9)])
    whole = pq.read_table(io.BytesIO(written(columns)))
    parts = pq.read_table(io.BytesIO(written(*(part for _, _, part in columns.split(4)))))
    assert whole.equals(parts)


def test_arrow_and_back() -> None:
    columns = columns_of(ROWS)
    for table in (to_arrow(columns, RAW), to_arrow(columns, RAW).slice(1), to_arrow(columns.slice(0, 2), RAW)):
        again = to_arrow(from_arrow(table, RAW), RAW)
        assert again.equals(table)
