"""Rows of other engines, held against their checksums before they are a part of the table."""

import random

import pyarrow as pa
import pytest
from support.clients.batches import batch
from support.clients.records import parse
from support.tables.foreign import Lake, table

from lakestream.errors import CorruptObject, ObjectMissing
from lakestream.model import DataFile
from lakestream.records import Arena, Encoder, Run, decode
from lakestream.table.rewriting.checking import Checked, RowChecker
from lakestream.table.shape import RAW


def updated(rows: pa.Table, column: str, place: int, value: object) -> pa.Table:
    values = rows.column(column).to_pylist()
    values[place] = value
    at = rows.schema.get_field_index(column)
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


def shuffled(*tables: pa.Table) -> pa.Table:
    rows = pa.concat_tables(tables)
    return rows.take(random.Random(1).sample(range(rows.num_rows), rows.num_rows))


async def check(lake: Lake, **options: int) -> Checked:
    return await RowChecker(lake.store, **options).check(lake.files, RAW)


async def test_rows_in_any_order_with_columns_of_the_owner_are_sound() -> None:
    lake = Lake()
    rows = shuffled(table(range(40)), table(range(20), partition=2))
    await lake.add(rows.append_column("note", pa.nulls(60, pa.string())), row_group_size=7)
    await lake.add(updated(updated(table(range(60, 70)), "_kind", 3, 7), "_schema_id", 3, 7))
    assert (await check(lake)).is_whole


@pytest.mark.parametrize("column", ["_key", "_value", "_headers", "_crc"])
@pytest.mark.parametrize("place", [0, 17, 39])
async def test_one_changed_row_is_found_by_its_partition_and_offset(column: str, place: int) -> None:
    lake = Lake()
    await lake.add(table(range(100, 120), partition=1))
    other = {"_key": b"other", "_value": b"other", "_headers": [{"key": "x", "value": b"y"}], "_crc": 5}[column]
    await lake.add(updated(table(range(40), partition=1), column, place, other), row_group_size=7)
    with pytest.raises(CorruptObject, match=rf"partition 1: the record at offset {place} cannot be restored"):
        await check(lake)


async def test_an_offset_that_stands_twice_in_a_row_group_is_found() -> None:
    lake = Lake()
    await lake.add(updated(table(range(10)), "_offset", 4, 3))
    with pytest.raises(CorruptObject, match="stands in the table twice"):
        await check(lake)


async def test_a_file_that_is_not_there_or_has_no_checksums_is_an_error() -> None:
    lake = Lake()
    await lake.add(table(range(10)).drop_columns(["_crc"]))
    with pytest.raises(CorruptObject, match="_crc"):
        await check(lake)
    lake.files = [DataFile(f"{lake.store.url}/tables/t/gone.parquet", 1, 10, 0, 0, 0, 0, None)]
    with pytest.raises(ObjectMissing):
        await check(lake)


async def test_of_more_than_can_be_checked_some_of_all_is() -> None:
    lake = Lake()
    for first in range(0, 1000, 100):
        rows = table(range(first, first + 100))
        for place in range(100):
            rows = updated(rows, "_value", place, b"all are other") if first == 700 else rows
        await lake.add(rows, row_group_size=10)
    with pytest.raises(CorruptObject, match="offset 7"):
        await check(lake, max_bytes=20_000)
    lake.files.pop(7)
    checked = await check(lake, max_bytes=20_000)
    assert not checked.is_whole
    assert 0 < checked.checked_count < checked.group_count == 90


async def test_what_was_found_sound_is_not_read_again() -> None:
    lake = Lake()
    await lake.add(table(range(10)))
    checker = RowChecker(lake.store)
    await checker.check(lake.files, RAW)
    await lake.store.delete([lake.files[0].path.removeprefix(f"{lake.store.url}/")])
    assert (await checker.check(lake.files, RAW)) == Checked(0, 0, is_whole=True)


def test_an_encoder_that_does_not_check_encodes_what_is_there() -> None:
    (columns,) = decode([Run(0, 5, batch(b"one", b"two", b"three"))], Arena(1 << 12))
    columns.value.data[0] ^= 1
    with pytest.raises(CorruptObject, match="offset 5"):
        Encoder(columns).encode(0, 3, max_bytes=1 << 20)
    data, after = Encoder(columns).encode(0, 3, max_bytes=1 << 20, checks=False)
    assert after == 3
    assert [(record.offset, record.value) for record in parse([data])] == [(5, b"nne"), (6, b"two"), (7, b"three")]
