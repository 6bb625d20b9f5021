"""Answers in bytes: JSON as programs expect it, and a digest whatever the order of rows and the format."""

import datetime as dt
import decimal
import json
from typing import Any

import pyarrow as pa

from lakestream.query.messages import AnswerFormat, Done
from lakestream.query.worker.encoding import Column, encode, unique_names


def encoded(table: pa.Table, form: AnswerFormat = AnswerFormat.JSON, rows: int = 1000) -> Done:
    columns = [Column(field.name, str(field.type)) for field in table.schema]
    return encode(columns, table.to_reader(), form, most_rows=rows, most_bytes=1 << 20)


def one(kind: pa.DataType, value: Any) -> Any:
    done = encoded(pa.table({"v": pa.array([value, None], kind)}))
    first, second = json.loads(done.body)
    assert second == {"v": None}
    return first["v"]


def test_values_as_json() -> None:
    utc = dt.UTC
    assert one(pa.int64(), 2**62) == 2**62
    assert one(pa.decimal128(38, 0), decimal.Decimal(10**30)) == 10**30
    assert one(pa.decimal128(10, 2), decimal.Decimal("12.50")) == "12.50"
    assert one(pa.float64(), 0.1) == 0.1
    assert one(pa.float64(), float("nan")) == "NaN"
    assert one(pa.float64(), float("-inf")) == "-Infinity"
    assert one(pa.string(), "é\n") == "é\n"
    assert one(pa.binary(), b"\xff\0") == "/wA="
    assert one(pa.bool_(), True) is True
    assert one(pa.date32(), dt.date(2026, 1, 2)) == "2026-01-02"
    assert one(pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 2, 3, 4, 5, 600, utc)) == "2026-01-02T03:04:05.0006Z"
    assert one(pa.timestamp("ns"), dt.datetime(1969, 12, 31, 23, 59, 59)) == "1969-12-31T23:59:59"
    assert one(pa.time64("us"), dt.time(1, 2, 3, 4)) == "01:02:03.000004"
    nested = pa.list_(pa.struct([("t", pa.timestamp("us", "UTC")), ("d", pa.decimal128(9, 1)), ("f", pa.float64())]))
    value = [{"t": dt.datetime(2026, 1, 2, tzinfo=utc), "d": decimal.Decimal("1.5"), "f": float("inf")}]
    assert one(nested, value) == [{"t": "2026-01-02T00:00:00Z", "d": "1.5", "f": "Infinity"}]
    assert one(pa.map_(pa.string(), pa.int32()), [("a", 1)]) == [["a", 1]]


def test_the_digest_is_of_the_rows() -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
    digests = {encoded(each, form).digest for form in AnswerFormat for each in (table, table.take([2, 0, 1]))}
    assert len(digests) == 1
    others = [table.slice(1), table.rename_columns(["a", "c"]), pa.table({"a": [1, 2, 3], "b": ["x", "y", "null"]})]
    assert len({encoded(each).digest for each in others} | digests) == 4
    twice = pa.concat_tables([table, table])
    assert encoded(twice).digest not in digests


def test_more_rows_than_there_may_be_are_cut_off() -> None:
    done = encoded(pa.table({"a": range(10)}), rows=4)
    assert (done.row_count, done.truncated, len(json.loads(done.body))) == (4, True, 4)
    exact = encoded(pa.table({"a": range(10)}), rows=10)
    assert (exact.row_count, exact.truncated) == (10, False)


def test_columns_of_one_name_are_told_apart() -> None:
    assert unique_names(["a", "b", "a", "a_1", "a"]) == ["a", "b", "a_1", "a_1_1", "a_2"]
