"""Rows that an engine has changed: the error is theirs alone."""

import pyarrow as pa
import pytest
from support.tables.foreign import Lake, expected, table

from lakestream.errors import CorruptObject


def updated(rows: pa.Table, column: str, place: int, value: object) -> pa.Table:
    values = rows.column(column).to_pylist()
    values[place] = value
    at = rows.schema.get_field_index(column)
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


@pytest.mark.parametrize("changed", [0, 1, 17, 38, 39])
async def test_records_before_and_after_a_changed_one_are_served(changed: int) -> None:
    lake = Lake()
    await lake.add(table(range(20)))
    await lake.add(updated(table(range(20, 60)), "_value", changed, b"other"))
    await lake.add(table(range(60, 80)))
    bad = 20 + changed
    found, offset = [], 0
    while offset < bad:
        records, offset = await lake.read(offset, 80)
        found += records
    assert found == [expected(number) for number in range(bad)]
    for at in (bad, bad):
        with pytest.raises(CorruptObject, match=rf"offset {bad} .*delete the row"):
            await lake.read(at, 80)
    assert await lake.replay(bad + 1, 80) == [expected(number) for number in range(bad + 1, 80)]


async def test_a_damaged_file_is_an_error_of_its_own_offsets() -> None:
    lake = Lake()
    await lake.add(table(range(20)))
    await lake.add(table(range(20, 40)).drop_columns(["_crc"]))
    records, offset = await lake.read(0, 40)
    assert (records, offset) == ([expected(number) for number in range(20)], 20)
    with pytest.raises(CorruptObject, match="_crc"):
        await lake.read(20, 40)


@pytest.mark.parametrize("column", ["_schema_id", "_kind"])
async def test_what_is_not_part_of_the_record_may_change(column: str) -> None:
    lake = Lake()
    await lake.add(updated(table(range(20)), column, 4, 7))
    assert await lake.replay(0, 20) == [expected(number) for number in range(20)]
