"""JSON values to columns and back: every value comes back to the byte, or its bytes stay."""

import io
import json
import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from support.properties import examples
from support.schemas.json import (
    LONGS,
    TREES,
    Style,
    Typed,
    damaged,
    framed,
    objects,
    shape_of,
    styles,
    typed,
    written,
)
from support.schemas.values import Values, parquet_of, read_parquet, rows_of, values_of

from lakestream.schemas.codecs import install
from lakestream.schemas.codecs.json.codec import PLAIN_CODEC
from lakestream.schemas.mapping import source_of
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.shape import KIND_RAW, KIND_TYPED, TableColumn, TableShape

install()


def kinds(rows: pa.Table) -> list[int]:
    return rows["_kind"].to_pylist()


def checked(shape: TableShape, values: Values, *, in_file: bool = False) -> pa.Table:
    """The rows of the values, which are sound and come back."""
    rows = rows_of(values, shape)
    rows.validate(full=True)
    assert rows.schema == arrow_schema(shape)
    for kind, value, kept in zip(kinds(rows), values, rows["_value"].to_pylist(), strict=True):
        assert kept == (None if kind == KIND_TYPED else value)
    assert values_of(rows, shape) == values
    if values and in_file:
        assert values_of(read_parquet(parquet_of(rows, shape)), shape) == values
    if values:
        assert values_of(rows.slice(1), shape) == values[1:]
    return rows


def same(column: TableColumn, held: Any, said: Any) -> bool:
    """Whether a column holds what a text says, by Python's reader."""
    if said is None or held is None:
        return held is None and said is None
    match column.kind:
        case "struct":
            return all(same(each, held[each.name], said.get(source_of(each))) for each in column.below)
        case "list":
            return len(held) == len(said) and all(map(lambda *pair: same(column.below[0], *pair), held, said))
        case "map":
            return [key for key, _ in held] == [*said] and all(
                same(column.below[1], value, said[key]) for key, value in held
            )
        case "double":
            return bool(held == float(said)) and math.copysign(1, held) == math.copysign(1, said)
        case "date":
            return bool(held == date.fromisoformat(said))
        case "timestamptz":
            return bool(held == datetime.fromisoformat(said).replace(tzinfo=UTC))
        case _:
            return bool((json.loads(held) if column.content == "json" else held) == said)


@examples(200)
@given(st.data(), objects() | typed(), styles())
def test_any_value_in_any_style_comes_back_to_the_byte(data: st.DataObject, found: Typed, style: Style) -> None:
    schema, values = found
    shape = shape_of(schema)
    said = data.draw(st.lists(values, min_size=1, max_size=6))
    rows = checked(shape, [framed(written(each, style)) for each in said], in_file=True)
    for row, value in zip(rows.to_pylist(), said, strict=True):
        read = json.loads(written(value, style))
        if row["_kind"] == KIND_RAW:
            continue
        is_object = any(schema.get("properties", ()))
        for column in shape.value_columns[:-1]:
            assert same(column, row[column.name], read.get(source_of(column)) if is_object else read)


@examples(150)
@given(st.data(), objects())
def test_what_python_writes_needs_no_bytes(data: st.DataObject, found: Typed) -> None:
    """But for integers where the schema has numbers, and names that columns do not have."""
    schema, values = found
    shape = shape_of(schema)
    said = data.draw(st.lists(values, max_size=6))
    ascii_only, indent = data.draw(st.booleans()), data.draw(st.sampled_from([None, 2]))
    texts = [json.dumps(each, ensure_ascii=ascii_only, indent=indent) for each in said]
    for kind, value in zip(kinds(checked(shape, [*map(framed, texts)])), said, strict=True):
        assert kind == KIND_TYPED or "" in str(value), value


@examples(100)
@given(st.data(), objects() | typed())
def test_damage_never_spoils_anything_but_its_own_row(data: st.DataObject, found: Typed) -> None:
    schema, values = found
    shape = shape_of(schema)
    good = [framed(json.dumps(each)) for each in data.draw(st.lists(values | TREES, min_size=1, max_size=4))]
    bad = [framed(data.draw(damaged(each[5:]))) for each in good]
    names = [column.name for column in shape.value_columns if column.name != "_format"]
    alone = checked(shape, [*good])
    mixed = checked(shape, [each for pair in zip(good, bad, strict=True) for each in pair])
    assert repr(mixed.select(names).to_pylist()[::2]) == repr(alone.select(names).to_pylist())


@examples(100)
@given(st.lists(st.none() | st.binary(max_size=30) | st.binary(max_size=30).map(framed)))
def test_bytes_of_any_kind_are_kept(values: Values) -> None:
    checked(shape_of(ORDER), values)


@examples(150)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_doubles_are_read_and_written_as_python_does(numbers: list[float]) -> None:
    rows = checked(shape_of({"type": "number"}), [framed(repr(each)) for each in numbers])
    assert repr(rows["value"].to_pylist()) == repr(numbers)
    assert set(kinds(rows)) == {KIND_TYPED}


@examples(150)
@given(st.from_regex(r"\A-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?\Z"))
def test_a_number_is_the_nearest_double_or_stays_bytes(text: str) -> None:
    [row] = checked(shape_of({"type": "number"}), [framed(text)]).to_pylist()
    if row["_kind"] != KIND_RAW:
        assert repr(row["value"]) == repr(float(text))
    else:
        assert math.isinf(float(text)) or len(text) > 19


@examples(100)
@given(LONGS | st.integers(-(2**70), 2**70), st.sampled_from(["", ".0", ".00", "e0", "E+0", "0e-1"]))
def test_whole_numbers_are_longs_however_they_are_written(number: int, behind: str) -> None:
    assume(number or not behind.startswith("0"))  # "00" is no JSON
    text = f"{number}{behind}"
    [row] = checked(shape_of({"type": "integer"}), [framed(text)]).to_pylist()
    fits = -(2**63) <= number < 2**63
    assert (row["_kind"] == KIND_TYPED) == (fits and not behind)
    if row["_kind"] != KIND_RAW:
        assert row["value"] == number
    else:
        assert not fits or len(text) > 19


ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "item": {"type": "string"},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "paid": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}},
        },
        "weights": {"type": "object", "additionalProperties": {"type": "number"}},
        "more": {},
    },
}


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "item": ["apple", "bänana", 'say "hi"\n'][number % 3],
        "price": number / 8,
        "at": f"2024-05-01T10:11:{number % 60:02}.{number % 1000:03}Z",
        "day": f"2024-02-{number % 29 + 1:02}",
        "paid": number % 2 == 0,
        "note": None if number % 3 else "x",
        "tags": ["a", "b"][: number % 3],
        "lines": [{"sku": f"s{place}", "count": place} for place in range(number % 4)],
        "weights": {"kg": number / 2, f"k{number % 5}": 1.5},
        "more": [None, {"x": [1, {}]}, "text", 5][number % 4],
    }


def test_columns_hold_what_the_text_says() -> None:
    said = order(6)
    [row] = checked(shape_of(ORDER), [framed(json.dumps(said))]).to_pylist()
    assert row["_kind"] == KIND_TYPED
    assert row["_schema_id"] == 1
    assert row["at"] == datetime(2024, 5, 1, 10, 11, 6, 6000, UTC)
    assert row["day"] == date(2024, 2, 7)
    assert row["lines"] == said["lines"]
    assert row["weights"] == [("kg", 3.0), ("k1", 1.5)]
    assert json.loads(row["more"]) == said["more"]
    assert json.loads(row["_format"])["v"] == 1


def test_values_without_framing_are_of_the_schema_that_the_shape_names() -> None:
    shape = shape_of(ORDER, codec=PLAIN_CODEC)
    values: Values = [json.dumps(order(number)).encode() for number in range(5)]
    rows = checked(shape, [*values, b"nothing", None])
    assert kinds(rows) == [2] * 5 + [0, 1]
    assert set(rows["_schema_id"].to_pylist()) == {1, None}


def test_formats_survive_what_engines_make_of_a_file(tmp_path: Path) -> None:
    """Other dictionaries, other files' rows between, a copy by DuckDB."""
    shape = shape_of(ORDER)
    python: Values = [framed(json.dumps(order(number))) for number in range(40)]
    compact: Values = [framed(json.dumps(order(number), separators=(",", ":"))) for number in range(40)]
    tiles = [rows_of(values, shape) for values in (python, compact, [*python[:3], b"bytes", None])]
    assert {kind for tile in tiles[:2] for kind in kinds(tile)} == {KIND_TYPED}
    whole = pa.concat_tables(tiles).combine_chunks()
    values = [*python, *compact, *python[:3], b"bytes", None]
    assert values_of(whole, shape) == values
    plain = whole.set_column(
        whole.schema.get_field_index("_format"), "_format", whole["_format"].cast(pa.large_string())
    )
    assert values_of(plain, shape) == values
    assert values_of(plain.take(pa.array(range(len(values) - 1, -1, -1))), shape) == values[::-1]
    source, target = tmp_path / "source.parquet", tmp_path / "target.parquet"
    pq.write_table(plain, source, use_dictionary=False)
    duckdb.sql(f"COPY (SELECT * FROM '{source}' ORDER BY _offset % 7, item) TO '{target}' (FORMAT parquet)")
    copied = pq.read_table(target)
    assert sorted(map(str, values_of(copied, shape))) == sorted(map(str, values))
    again = pq.read_table(io.BytesIO(parquet_of(rows_of(values_of(whole, shape), shape), shape)))
    assert values_of(again, shape) == values


def test_rows_that_an_engine_added_are_compact_texts() -> None:
    shape = shape_of(ORDER)
    rows = rows_of([framed(json.dumps(order(number))) for number in range(4)], shape)
    place = rows.schema.get_field_index("_format")
    added = rows.set_column(place, rows.schema.field(place), pa.nulls(4, rows.schema.field(place).type))
    for number, value in enumerate(values_of(added, shape)):
        assert value is not None
        assert value[:5] == framed("")
        wanted = {key: said for key, said in order(number).items() if said is not None}
        found = json.loads(value[5:])
        assert datetime.fromisoformat(found.pop("at")) == datetime.fromisoformat(wanted.pop("at"))
        assert found == wanted
        assert b'"item":"' in value


def test_what_is_no_template_makes_no_value() -> None:
    """Its checksum tells."""
    shape = shape_of(ORDER)
    rows = rows_of([framed(json.dumps(order(1)))], shape)
    place = rows.schema.get_field_index("_format")
    good = json.loads(rows["_format"][0].as_py())
    for text in (
        "",
        "{}",
        '{"v":1}',
        json.dumps(good | {"value": {"members": [['"nobody":', "s", 0]], "space": ["", ",", "", ""]}}),
        json.dumps(good | {"value": {"members": [['"id":', "s", 0]], "space": ["", ",", "", ""]}}),
        json.dumps(good | {"value": {"members": [['"id":', "l", 0]], "space": ["", "x", "", ""]}}),
        json.dumps(good | {"value": {"members": [['"id" 1:', "l", 0]], "space": ["", ",", "", ""]}}),
        json.dumps(good | {"before": "x"}),
        json.dumps(good | {"numbers": [[-4, 16, ".0", "q", 2, ""]]}),
        json.dumps(good | {"times": [["T", 3, "CET"]]}),
        json.dumps(good | {"short": "x"}),
    ):
        other = rows.set_column(place, rows.schema.field(place), pa.array([text]).dictionary_encode())
        assert values_of(other, shape) == [b""], text


def test_a_template_of_a_later_version_is_refused() -> None:
    shape = shape_of(ORDER)
    rows = rows_of([framed(json.dumps(order(1)))], shape)
    place = rows.schema.get_field_index("_format")
    later = rows.set_column(place, rows.schema.field(place), pa.array(['{"v":2}']).dictionary_encode())
    with pytest.raises(Exception, match="templates of version 2"):
        values_of(later, shape)


def test_values_of_several_schemas() -> None:
    wider = {"type": "object", "properties": {**ORDER["properties"], "extra": {"type": "integer"}}}  # type: ignore[dict-item]
    shape = shape_of(ORDER, wider, {"type": "string"})
    first, second = framed(json.dumps(order(1))), b"\0\0\0\0\2" + json.dumps(order(2) | {"extra": 5}).encode()
    rows = checked(shape, [first, second, b"\0\0\0\0\3" + b'"text"', b"\0\0\0\0\4{}", first])
    assert kinds(rows) == [2, 2, 2, 0, 2]
    assert rows["extra"].to_pylist() == [None, 5, None, None, None]
    assert rows["value"].to_pylist() == [None, None, "text", None, None]


def test_keys_that_the_schema_has_not_keep_the_bytes_beside_the_columns() -> None:
    shape = shape_of(ORDER)
    values: Values = [framed(json.dumps(order(number) | {"unknown": {"a": [1]}})) for number in range(3)]
    rows = checked(shape, values)
    assert kinds(rows) == [3] * 3
    assert rows["id"].to_pylist() == [0, 1, 2]


def test_null_and_absent_are_told_apart_by_the_template() -> None:
    shape = shape_of(ORDER)
    texts = ['{"id":1,"note":null}', '{"id":1}', '{"note":"x","id":2}', "{}", '{"id":null,"note":null}']
    assert kinds(checked(shape, [*map(framed, texts)])) == [2] * 5


def test_a_tile_has_so_many_templates() -> None:
    shape = shape_of({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})
    values: Values = [framed('{"a":1,' + " " * number + '"b":2}') for number in range(200)]
    rows = checked(shape, values)
    assert kinds(rows) == [2] * 64 + [3] * 136
    assert rows["a"].to_pylist() == [1] * 200


def test_a_row_whose_text_no_template_makes_does_not_stop_the_others() -> None:
    shape = shape_of({"type": "object", "properties": {"a": {"type": "number"}}})
    odd = framed('{"a":1.50E+1}')
    plain = framed('{"a":1.5}')
    assert kinds(checked(shape, [odd, plain, odd, plain] * 300)) == [3, 2] * 600


def test_how_numbers_and_times_are_written() -> None:
    shape = shape_of(ORDER)
    for name, texts in {
        "price": ["12", "12.0", "12.50", "1e+16", "1e16", "1.0E16", "1E+16", "1e-7", "1e-07", "1.0E-7", "-0.0", "-0"],
        "at": [
            *('"2024-05-01T10:11:12Z"', '"2024-05-01T10:11:12.1Z"', '"2024-05-01T10:11:12.123456+00:00"'),
            *('"2024-05-01T10:11:12.120-05:30"', '"2024-05-01 10:11:12"', '"0001-01-01T00:00:00z"'),
            *('"2024-05-01T10:11:12.1234560Z"', '"9999-12-31T23:59:59.999999Z"', '"2024-05-01T10:11:12.123456000Z"'),
        ],
    }.items():
        rows = checked(shape, [framed(f'{{"{name}":{text}}}') for text in texts])
        assert kinds(rows) == [2] * len(texts), [
            text for text, kind in zip(texts, kinds(rows), strict=True) if kind != 2
        ]
    odd = ['"2024-05-01T10:11:12.123456789Z"', '"2016-12-31T23:59:60Z"', '"2024-05-01T10:11Z"']
    assert kinds(checked(shape, [framed(f'{{"at":{text}}}') for text in odd])) == [3, 3, 3]


def test_offsets_of_zones_are_in_the_column() -> None:
    [row] = checked(shape_of(ORDER), [framed('{"at":"2024-05-01T01:11:12.120+02:30"}')]).to_pylist()
    assert row["at"] == datetime(2024, 4, 30, 22, 41, 12, 120000, UTC)


def test_columns_that_an_engine_changed_are_still_json() -> None:
    shape = shape_of(ORDER)
    rows = rows_of([framed(json.dumps(order(2)))], shape)
    for name, changed in {"item": '"\x00\\', "price": 1e300, "id": -(2**63), "more": '{"a": 1}'}.items():
        place = rows.schema.get_field_index(name)
        field = rows.schema.field(place)
        [value] = values_of(rows.set_column(place, field, pa.array([changed], field.type)), shape)
        assert value is not None
        found = json.loads(value[5:])[name]
        assert (json.dumps(found) if name == "more" else found) == changed
    place = rows.schema.get_field_index("more")
    broken = rows.set_column(place, rows.schema.field(place), pa.array(['{"a": 1']))
    assert values_of(broken, shape) == [b""]
    place = rows.schema.get_field_index("price")
    for number in (np.nan, np.inf):
        broken = rows.set_column(place, rows.schema.field(place), pa.array([number]))
        assert values_of(broken, shape) == [b""]
