"""Avro values to columns and back: every value comes back to the byte, or its bytes stay."""

import io
import json
from itertools import pairwise
from typing import Any

import fastavro
import hypothesis.strategies as st
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from support.schemas.avro import Typed, damaged, framed, records, typed, written

from lakestream.records import Binary
from lakestream.schemas.codecs.avro.codec import CODEC, PLAIN_CODEC, AvroCodec
from lakestream.schemas.shapes import with_plain_schema, with_schema
from lakestream.table.parquet.codec import DecodedValues
from lakestream.table.shape import RAW, TableShape, ValueSchema

CODECS = AvroCodec()
EMPTY = msgspec.structs.replace(RAW, codec=CODEC)


def shape_of(*schemas: Any, first_id: int = 1) -> TableShape:
    shape = EMPTY
    for number, schema in enumerate(schemas, first_id):
        shape = with_schema(shape, ValueSchema(number, json.dumps(schema)))
    return shape


def decoded(shape: TableShape, values: list[bytes | None]) -> DecodedValues:
    """Also checks that the arrays are sound, and that what is exact comes back as it was."""
    found = CODECS.decode(pa.array(values, pa.binary()), shape)
    for name, array in found.columns.items():
        array.validate(full=True)
        assert len(array) == len(values), name
    assert not (found.is_exact & ~found.is_typed).any()
    assert again(shape, found, values) == values
    return found


def binary(values: list[bytes | None]) -> Binary:
    offsets = np.cumsum([0, *(len(value or b"") for value in values)]).astype(np.int32)
    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    return Binary(offsets, data, np.array([value is not None for value in values], np.uint8))


def again(shape: TableShape, found: DecodedValues, values: list[bytes | None]) -> list[bytes | None]:
    """What a fetch would give, with bytes kept only where they have to be."""
    kept = [None if exact else value for value, exact in zip(values, found.is_exact, strict=True)]
    ids = np.where(found.is_exact, found.schema_ids.fill_null(-1).to_numpy(zero_copy_only=False), -1)
    made = CODECS.encode(found.columns, ids.astype(np.int64), binary(kept), shape)
    return texts(made)


def texts(made: Binary) -> list[bytes | None]:
    return [
        made.data[start:stop].tobytes() if there else None
        for (start, stop), there in zip(pairwise(made.offsets.tolist()), made.valid, strict=True)
    ]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), records() | typed())
def test_any_value_of_any_schema_comes_back_to_the_byte(data: st.DataObject, found: Typed) -> None:
    schema, values = found
    sent: list[bytes | None] = [framed(1, written(schema, each)) for each in data.draw(st.lists(values, max_size=6))]
    shape = shape_of(schema)
    result = decoded(shape, sent)
    assert result.is_typed.all(), schema
    has_text = any(column.content == "json" for column in _all(shape.value_columns))
    assert has_text or result.is_exact.all(), schema


def _all(columns: Any) -> Any:
    for column in columns:
        yield column
        yield from _all(column.below)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), records() | typed())
def test_damage_never_spoils_anything_but_its_own_row(data: st.DataObject, found: Typed) -> None:
    schema, values = found
    good: list[bytes | None] = [framed(1, written(schema, each)) for each in data.draw(st.lists(values, max_size=4))]
    bad = [data.draw(damaged(each or b"")) for each in good]
    shape = shape_of(schema)
    alone = decoded(shape, good)
    mixed = decoded(shape, [each for pair in zip(good, bad, strict=True) for each in pair])
    assert (mixed.is_typed[::2] == alone.is_typed).all()
    for name, array in alone.columns.items():
        unspoilt = mixed.columns[name].take(pa.array(range(0, len(mixed.is_typed), 2), pa.int64()))
        assert repr(unspoilt.to_pylist() if _readable(array) else "") == repr(
            array.to_pylist() if _readable(array) else ""
        )


def _readable(array: pa.Array) -> bool:
    """By Python, which has no date after the year 9999."""
    try:
        array.to_pylist()
    except (ValueError, OverflowError):
        return False
    return True


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=30) | st.binary(max_size=30).map(lambda each: framed(1, each))))
def test_bytes_of_any_kind_are_kept(values: list[bytes | None]) -> None:
    decoded(shape_of(ORDER), values)


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "amount", "type": ["null", "double"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "either", "type": ["null", "string", "long"]},
    ],
}


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "item": f"item {number}",
        "amount": number / 7 if number % 3 else None,
        "kind": ["NEW", "OLD"][number % 2],
        "tags": ["é"] * (number % 4),
        "more": {f"k{index}": index if index else None for index in range(number % 3)},
        "either": [None, "text", 5][number % 3],
    }


def test_columns_hold_what_the_producer_wrote() -> None:
    rows = [order(number) for number in range(100)]
    found = decoded(shape_of(ORDER), [framed(1, written(ORDER, row)) for row in rows])
    assert found.is_exact.all()
    columns = {name: array.to_pylist() for name, array in found.columns.items()}
    for number, row in enumerate(rows):
        either = row["either"]
        wanted = {
            **row,
            "more": [*row["more"].items()],
            "either": None
            if either is None
            else {
                "string": either if isinstance(either, str) else None,
                "long": either if isinstance(either, int) else None,
            },
        }
        assert {name: column[number] for name, column in columns.items()} == wanted


def test_a_batch_of_several_schemas() -> None:
    """An added field, a widened one, new symbols, one that went."""
    second = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["LOST", "OLD", "NEW"]}},
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
    first = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
            {"name": "item", "type": "string"},
        ],
    }
    shape = shape_of(first, second)
    values: list[bytes | None] = [
        framed(1, written(first, {"id": -5, "kind": "OLD", "item": "x"})),
        framed(2, written(second, {"id": 2**40, "kind": "LOST", "note": "n"})),
        framed(3, b"of nobody"),
        framed(1, written(first, {"id": 2**31 - 1, "kind": "NEW", "item": ""})),
    ]
    found = decoded(shape, values)
    assert found.is_exact.tolist() == [True, True, False, True]
    assert found.schema_ids.to_pylist() == [1, 2, None, 1]
    assert found.columns["id"].to_pylist() == [-5, 2**40, None, 2**31 - 1]
    assert found.columns["kind"].to_pylist() == ["OLD", "LOST", None, "NEW"]
    assert found.columns["note"].to_pylist() == [None, "n", None, None]


@pytest.mark.parametrize(
    ("schema", "value", "is_typed"),
    [
        ("double", b"\x01\0\0\0\0\0\xf8\x7f", True),  # another NaN, which engines rewrite
        ("float", b"\x01\0\xc0\x7f", True),
        ("long", b"\x80\0", True),  # a number longer than need be
        ("long", b"\x02\0", True),  # bytes behind the value
        ({"type": "array", "items": "long"}, b"\x01\x02\x04\0", True),  # a block with its size
        ({"type": "array", "items": "long"}, b"\x02\x04\x02\x06\0", True),  # two blocks
        ({"type": "map", "values": "long"}, b"\x04\x02a\x02\x02a\x04\0", True),  # a key twice
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0}, b"\x04\0\x01", True),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0}, b"\x04\x7f\xff", False),
        ("string", b"\x02\xff", False),  # no text
        ("boolean", b"\x02", False),
        ("int", b"\x80\x80\x80\x80\x20", False),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", False),
    ],
)
def test_what_would_not_survive_keeps_its_bytes(schema: Any, value: bytes, is_typed: bool) -> None:
    found = decoded(shape_of(schema), [framed(1, value)])
    assert (found.is_typed.tolist(), found.is_exact.tolist()) == ([is_typed], [False])


@pytest.mark.parametrize(
    "items", ["null", {"type": "record", "name": "E", "fields": []}, {"type": "array", "items": "null"}]
)
def test_a_claim_of_many_items_that_take_no_bytes_ends(items: Any) -> None:
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    few = written({"type": "array", "items": "null"}, [None] * 3)
    nested = written("long", 40_000) * 500
    for value in (many, many + b"\0", b"\x02" + many, nested):
        found = decoded(shape_of({"type": "array", "items": items}), [framed(1, value), framed(1, few)])
        assert not found.is_typed[0]


RECURSIVE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "value", "type": "double"},
        {"name": "next", "type": ["null", "Node"]},
        {"name": "children", "type": {"type": "array", "items": "Node"}},
    ],
}


def test_what_refers_to_itself_is_json_beside_its_bytes() -> None:
    leaf = {"value": 1.5, "next": None, "children": []}
    rows = [leaf, {"value": 2, "next": leaf, "children": [leaf, {**leaf, "next": leaf}]}]
    found = decoded(shape_of(RECURSIVE), [framed(1, written(RECURSIVE, row)) for row in rows])
    assert found.is_exact.tolist() == [True, False]
    [_, text] = found.columns["next"].to_pylist()
    assert json.loads(text) == leaf
    assert [json.loads(each) for each in found.columns["children"].to_pylist()[1]] == rows[1]["children"]


def test_a_value_that_nests_too_deep_stays_bytes() -> None:
    value = written("double", 0.0)
    deep = (value + b"\x02") * 100_000 + value + b"\0\0"
    found = decoded(shape_of(RECURSIVE), [framed(1, deep), framed(1, value + b"\0\0")])
    assert found.is_typed.tolist() == [False, True]


def test_uuids_of_16_bytes_are_text() -> None:
    schema = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    data = bytes(range(16))
    found = decoded(shape_of(schema), [framed(1, data)])
    assert found.columns["value"].to_pylist() == ["00010203-0405-0607-0809-0a0b0c0d0e0f"]
    assert found.is_exact.all()


def test_columns_that_an_engine_changed_are_no_value() -> None:
    """What is then served does not hold against the record's checksum."""
    shape = shape_of(ORDER)
    values: list[bytes | None] = [framed(1, written(ORDER, order(number))) for number in range(3)]
    found = CODECS.decode(pa.array(values, pa.binary()), shape)
    for name, changed in {
        "id": pa.array([None, None, 7], pa.int64()),
        "kind": pa.array(["NEW", "GONE", "OLD"]),
        "tags": pa.array([None, [None], ["x"]], pa.list_(pa.string())),
        "either": pa.array(
            [{"string": "x", "long": 5}, {}, None], pa.struct({"string": pa.string(), "long": pa.int64()})
        ),
    }.items():
        made = CODECS.encode({**found.columns, name: changed}, np.array([1, 1, 1]), binary([None] * 3), shape)
        assert texts(made)[1] == b"", name


def test_wide_and_long_values() -> None:
    wide = {"type": "record", "name": "W", "fields": [{"name": f"c{n}", "type": "long"} for n in range(2000)]}
    row = {f"c{n}": n for n in range(2000)}
    assert decoded(shape_of(wide), [framed(1, written(wide, row))] * 3).is_exact.all()
    long = {"type": "array", "items": "string"}
    values: list[bytes | None] = [framed(1, written(long, ["x" * 100] * count)) for count in (0, 200_000, 1)]
    assert decoded(shape_of(long), values).is_exact.all()


def test_no_reader_of_the_library_disagrees() -> None:
    """fastavro reads from the rebuilt bytes what was written."""
    shape = shape_of(ORDER)
    values: list[bytes | None] = [framed(1, written(ORDER, order(number))) for number in range(20)]
    found = CODECS.decode(pa.array(values, pa.binary()), shape)
    for number, value in enumerate(again(shape, found, values)):
        assert fastavro.schemaless_reader(io.BytesIO((value or b"")[5:]), fastavro.parse_schema(ORDER), None) == order(
            number
        )


def test_values_without_framing_are_of_the_schema_that_the_shape_names() -> None:
    """Rows keep theirs when it names another."""
    second = {**ORDER, "fields": [{"name": "id", "type": "long"}]}
    shape = msgspec.structs.replace(shape_of(ORDER, second), codec=PLAIN_CODEC)
    codec = AvroCodec(is_framed=False)
    values: list[bytes | None] = [written(ORDER, order(number)) for number in range(5)]
    assert not codec.decode(pa.array(values, pa.binary()), shape).is_typed.any()
    shape = with_plain_schema(shape, 1)
    found = codec.decode(pa.array([*values, None, b"?"], pa.binary()), shape)
    assert found.is_exact.tolist() == [True] * 5 + [False] * 2
    assert found.schema_ids.to_pylist() == [1] * 5 + [None] * 2
    later = with_plain_schema(shape, 2)
    columns = {name: array.slice(0, 5) for name, array in found.columns.items()}
    assert texts(codec.encode(columns, np.full(5, 1), binary([None] * 5), later)) == values
    assert codec.decode(pa.array([written("long", 7)], pa.binary()), later).schema_ids.to_pylist() == [2]


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        ("long", b"", "nothing"),
        ("long", b"{}", "7b 7d"),
        ("long", framed(9, b""), "schema 9"),
        (
            record := {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]},
            framed(1, b""),
            "field a",
        ),
        (record, framed(1, b"\x80" * 10), "does not end"),
        ("string", framed(1, b"\x04a"), "claims 2 bytes, and there are 1 left"),
        ("string", framed(1, b"\x02\xff"), "UTF-8"),
        ("boolean", framed(1, b"\x02"), "boolean"),
        ("int", framed(1, written("long", 2**31)), "more than an int"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, framed(1, b"\x02"), "symbol 1"),
        (["null", "int"], framed(1, b"\x04"), "branch 2"),
        ({"type": "array", "items": "null"}, framed(1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "claims"),
        ({"type": "map", "values": "int"}, framed(1, b"\x02\x02\xff"), "[0].key"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, framed(1, b"\x04\x7f\xff"), "4 digits"),
    ],
)
def test_a_value_that_stays_bytes_is_explained(schema: Any, value: bytes, why: str) -> None:
    shape = shape_of(schema)
    assert not decoded(shape, [value]).is_typed.any()
    assert why in CODECS.explain(value, shape)


def test_a_schema_with_a_trouble_explains_itself() -> None:
    shape = shape_of(
        {**ORDER, "fields": [{"name": "id", "type": "long"}]}, ORDER | {"fields": [{"name": "id", "type": "string"}]}
    )
    assert "id is long in the table and string in the schema" in CODECS.explain(framed(2, b""), shape)
    other = with_schema(shape, ValueSchema(3, "{}", format="JSON"))
    assert other.columns == shape.columns
    assert "JSON" in CODECS.explain(framed(3, b""), other)


def test_whatever_the_bytes_an_explanation_ends() -> None:
    shape = shape_of(RECURSIVE)
    deep = (written("double", 0.0) + b"\x02") * 100_000
    assert "levels" in CODECS.explain(framed(1, deep), shape)
    shape = shape_of({"type": "array", "items": "null"})
    assert "items" in CODECS.explain(framed(1, b"\x80\x80\x80\x10" * 5), shape)
    assert CODECS.explain(framed(1, b"\x7e" * 20_000_000), shape)
