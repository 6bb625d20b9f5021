"""The texts of `_format` are decoded once each, from files of any engine, and only where they are texts."""

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.schemas.json import framed, shape_of
from support.schemas.values import Values, parquet_of, rows_of, values_of

from lakestream.errors import CorruptObject
from lakestream.objects import MemoryObjects
from lakestream.runtime import system
from lakestream.schemas.codecs import install
from lakestream.table.parquet import files as parquet
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.parquet.footers import ParquetFooter

install()
SHAPE = shape_of({"type": "object", "properties": {"id": {"type": "integer"}, "item": {"type": "string"}}})
SENT: Values = [
    None if n % 9 == 8 else framed(json.dumps({"id": n, "item": "x"}, indent=n % 3 or None)) for n in range(40)
]
DICTIONARY = pa.dictionary(pa.int32(), pa.string())


async def read(data: bytes, columns: list[str]) -> pa.Table:
    """Of a file of one row group."""
    store = MemoryObjects(system().clock)
    await store.put("t/0.parquet", [data])
    files = ParquetFiles(store)
    [footer] = await files.footers([f"{store.url}/t/0.parquet"])
    assert isinstance(footer, ParquetFooter)
    in_one = await files.read(footer.groups[0], footer, columns, lambda table: table)
    in_pieces = await files.read(footer.groups[0], footer, columns, lambda table: table, pieces=True)
    assert in_one.equals(in_pieces)
    return in_pieces


def foreign(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


def replaced(rows: pa.Table, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index("_format"), "_format", column)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "PIECE_BYTES", 1)
    monkeypatch.setattr(parquet, "_PIECE_ROWS", 7)


async def test_a_file_of_ours() -> None:
    table = await read(parquet_of(rows_of(SENT, SHAPE), SHAPE), SHAPE.names)
    assert table.schema.field("_format").type == DICTIONARY
    assert table.column("_format").num_chunks == 6
    assert table.schema.field("item").type == pa.string()
    assert values_of(table, SHAPE) == SENT


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), DICTIONARY, pa.dictionary(pa.int8(), pa.large_string())],
    ids=str,
)
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"store_schema": False}], ids=str)
async def test_a_file_of_another_engine(kind: pa.DataType, options: dict[str, Any]) -> None:
    rows = rows_of(SENT, SHAPE)
    texts = pa.array(rows.column("_format").to_pylist(), pa.string())
    data = foreign(replaced(rows, texts.cast(kind)), **options)
    table = await read(data, SHAPE.names)
    assert table.schema.field("_format").type == DICTIONARY
    assert values_of(table, SHAPE) == SENT


async def test_a_file_without_it() -> None:
    rows = rows_of([framed('{"id":1,"item":"x"}'), framed('{"id":2}')], SHAPE).drop_columns(["_format"])
    table = await read(foreign(rows), SHAPE.names)
    assert "_format" not in table.column_names
    assert values_of(table, SHAPE) == [framed('{"id":1,"item":"x"}'), framed('{"id":2}')]


@pytest.mark.parametrize(
    "column",
    [pa.array([1, None]), pa.array([b"x", None]), pa.array([["x"], None]), pa.array([{"_format": "x"}, None])],
    ids=lambda column: str(column.type),
)
async def test_a_column_of_that_name_that_is_no_text_stays_what_it_is(column: pa.Array) -> None:
    table = await read(foreign(pa.table({"_format": column})), ["_format"])
    assert table.column("_format").combine_chunks().to_pylist() == column.to_pylist()
    assert not pa.types.is_dictionary(table.schema.field("_format").type)


@pytest.mark.parametrize("kind", [pa.string(), DICTIONARY], ids=str)
async def test_a_place_outside_of_the_dictionary_is_damage(kind: pa.DataType) -> None:
    """Arrow does not look, and would read memory there."""
    texts = ["a", "b", "c", *(["c"] * 100)]
    column = pa.array(texts).cast(kind)
    data = bytearray(foreign(pa.table({"_format": column}), compression="none", write_statistics=False))
    repeated = data.index(bytes([2 * (len(texts) - 8) & 0x7F | 0x80, 2 * (len(texts) - 8) >> 7, 2]))
    assert (await read(bytes(data), ["_format"])).column("_format").to_pylist() == texts
    data[repeated + 2] = 3
    with pytest.raises(CorruptObject, match=r"row group 0 of .* cannot be read: .*out of bounds"):
        await read(bytes(data), ["_format"])
