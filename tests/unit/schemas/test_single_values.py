"""Values one by one between JSON and bytes: beside the libraries of others, and wrong ones."""

import io
import json
import struct
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestream.errors import InvalidRecords
from lakestream.schemas.single.avro import AvroValues
from lakestream.schemas.single.values import framed, record_name, unframed
from lakestream.table.shape import ValueSchema

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "weight", "type": "float"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "either", "type": ["string", "long", {"type": "fixed", "name": "Two", "size": 2}]},
        {"name": "raw", "type": "bytes"},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "M"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "shop.Size"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "next", "type": ["null", "shop.Order"]},
    ],
}
LATIN = st.text(st.characters(max_codepoint=255), max_size=5)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
BODIES = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "count": st.integers(-(2**31), 2**31 - 1),
        "price": st.floats(allow_nan=False, allow_infinity=False),
        "weight": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "paid": st.booleans(),
        "note": st.none() | TEXT.map(lambda text: {"string": text}),
        "either": TEXT.map(lambda text: {"string": text})
        | st.integers(-9, 9).map(lambda number: {"long": number})
        | st.text("ab", min_size=2, max_size=2).map(lambda text: {"shop.Two": text}),
        "raw": LATIN,
        "size": st.sampled_from(["S", "M"]),
        "tags": st.lists(TEXT, max_size=3),
        "more": st.dictionaries(TEXT, st.none() | st.just({"shop.Size": "M"}), max_size=2),
        "at": st.integers(0, 2**40),
    }
)
ORDERS = st.recursive(
    BODIES.map(lambda body: body | {"next": None}),
    lambda below: st.tuples(BODIES, below).map(lambda both: both[0] | {"next": {"shop.Order": both[1]}}),
    max_leaves=3,
)


FLAT = ORDER | {"fields": [each for each in ORDER["fields"] if each["name"] not in ("more", "next")]}  # type: ignore[index]
"""The other library does not find types by their names in JSON."""


@given(BODIES)
def test_avro_is_as_another_library_reads_its_json(body: dict[str, Any]) -> None:
    order = {name: value for name, value in body.items() if name != "more"}
    [theirs] = fastavro.json_reader(io.StringIO(json.dumps(order)), FLAT)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(FLAT), theirs)
    ours = AvroValues(json.dumps(FLAT), ())
    assert ours.encoded(order) == out.getvalue()
    assert ours.decoded(out.getvalue()) == order


@given(ORDERS)
def test_avro_comes_back_with_types_by_their_names_and_nested(order: dict[str, Any]) -> None:
    values = AvroValues(json.dumps(ORDER), ())
    assert values.decoded(values.encoded(order)) == order


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"id": "1"}, "id is '1', and should be a number of the type long"),
        ({"id": 2**63}, "long"),
        ({"id": True}, "long"),
        ({"count": 1.5}, "int"),
        ({"raw": "€"}, "beyond 255"),
        ({"size": "L"}, "one of S, M"),
        ({"either": {"strange": 1}}, "names none of its branches"),
        ({"either": None}, "should be one of"),
        ({"either": {"shop.Two": "abc"}}, "2 bytes"),
        ({"tags": "x"}, "an array"),
        ({"tags": ["x", 1]}, "tags[1] is '1'"),
        ({"weight": 1e300}, "too large"),
        ({"other": 1}, "no field 'other'"),
    ],
)
def test_avro_that_is_wrong_says_where(changes: dict[str, Any], told: str) -> None:
    good = {"id": 1, "count": 1, "price": 1, "weight": 1, "paid": True, "note": None, "either": {"long": 1}, "raw": ""}
    good |= {"size": "S", "tags": [], "more": {}, "at": 1, "next": None}
    with pytest.raises(InvalidRecords) as refused:
        AvroValues(json.dumps(ORDER), ()).encoded(good | changes)
    assert told in str(refused.value)


def test_a_union_with_null_takes_its_value_bare() -> None:
    values = AvroValues(json.dumps(["null", "string"]), ())
    assert values.encoded("x") == values.encoded({"string": "x"})
    assert values.encoded(None) == b"\0"


@given(st.binary(max_size=40))
def test_avro_bytes_of_anything_are_read_or_refused(data: bytes) -> None:
    with suppress(InvalidRecords):
        AvroValues(json.dumps(ORDER), ()).decoded(data)


def test_protobuf_is_its_first_message_behind_a_place() -> None:
    fields = "int64 id = 1; repeated string tags = 2; message B { int32 x = 1; }"
    text = f'syntax = "proto3"; package shop; message A {{ {fields} }}'
    schema = ValueSchema(7, text, format="PROTOBUF")
    value = framed(schema, b'{"id": "5", "tags": ["x"]}')
    assert value == b"\0" + struct.pack(">i", 7) + b"\0" + b"\x08\x05\x12\x01x"
    assert unframed(schema, value) == {"id": "5", "tags": ["x"]}
    assert unframed(schema, value[:5] + b"\x04\x00\x00" + b"\x08\x03") == {"x": 3}
    assert record_name(schema) == "shop.A"
    for wrong in (b'{"id": "x"}', b'{"other": 1}', b"[1]", b"1"):
        with pytest.raises(InvalidRecords):
            framed(schema, wrong)
    for wrong in (value[:5], value[:5] + b"\x02\x09", value[:6] + b"\xff"):
        with pytest.raises(InvalidRecords):
            unframed(schema, wrong)


def test_json_keeps_its_schemas_rules() -> None:
    schema = ValueSchema(3, '{"type": "object", "required": ["a"]}', format="JSON")
    assert framed(schema, b'{"a":  1.0}') == b"\0\0\0\0\x03" + b'{"a":  1.0}'
    with pytest.raises(InvalidRecords, match="required"):
        framed(schema, b"{}")
