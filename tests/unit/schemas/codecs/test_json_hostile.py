"""Texts in JSON that nobody means well with: each has a clear outcome, loses nothing, and ends."""

import time
from typing import Any

import pyarrow as pa
import pytest
from support.schemas.json import framed, shape_of
from support.schemas.values import rows_of, values_of

from lakestream.schemas.codecs import install
from lakestream.schemas.codecs.json.codec import JsonCodec
from lakestream.table.shape import KIND_RAW, KIND_TYPED, KIND_TYPED_AND_RAW

install()
FIELDS: dict[str, Any] = {
    "a": {"type": "integer"},
    "b": {"type": "number"},
    "s": {"type": "string"},
    "t": {"type": "string", "format": "date-time"},
    "d": {"type": "string", "format": "date"},
    "f": {"type": "boolean"},
    "l": {"type": "array", "items": {"type": "integer"}},
    "m": {"type": "object", "additionalProperties": {"type": "integer"}},
    "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
    "j": {},
}
SHAPE = shape_of({"type": "object", "properties": FIELDS})
GOOD = framed('{"a":1,"b":1.5,"s":"x"}')
DEEP = "[" * 200 + "]" * 200


def outcome(value: bytes) -> int:
    """Its kind, beside rows that it must not touch."""
    rows = rows_of([GOOD, value, None, GOOD], SHAPE)
    assert values_of(rows, SHAPE) == [GOOD, value, None, GOOD]
    first, found, _, last = rows.to_pylist()
    assert (first["a"], first["b"], first["s"], first["_kind"]) == (1, 1.5, "x", KIND_TYPED)
    assert {**last, "_offset": 0, "_format": first["_format"]} == first
    if found["_kind"] == KIND_RAW:
        assert {found[column.name] for column in SHAPE.value_columns} == {None}
    kind: int = found["_kind"]
    return kind


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "it is not JSON"),
        (b"null", "it is null, where the schema has an object"),
        (b"5", "the value is 5, where the schema has an object"),
        (b'"text"', "the value is the string 'text', where the schema has an object"),
        (b"[]", "the value is an array, where the schema has an object"),
        (b"true", "the value is a boolean, where the schema has an object"),
        (b'{"a":1', "it is not JSON"),
        (b'{"a":1}}', "it is not JSON"),
        (b'{"a":1,}', "it is not JSON"),
        (b'{"a":01}', "it is not JSON"),
        (b"{'a':1}", "it is not JSON"),
        (b'{"a" 1}', "it is not JSON"),
        (b'{"s":"x\ny"}', "it is not JSON"),
        (b'{"s":"\\x"}', "it is not JSON"),
        (b'{"s":"\\u12"}', "it is not JSON"),
        (b'{"l":[1,]}', "it is not JSON"),
        (b'{"l":[1}', "it is not JSON"),
        (b'{"unknown":[1}', "it is not JSON"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        (b'{"s":"\xff"}', "it is not UTF-8 at its byte 6"),
        (b'{"unknown":"\xff"}', "it is not UTF-8"),
        (b'{"s":"\xed\xa0\x80"}', "it is not UTF-8"),
        (b'{"b":NaN}', "NaN is no JSON"),
        (b'{"b":Infinity}', "Infinity is no JSON"),
        (b'{"b":-Infinity}', "-Infinity is no JSON"),
        (b'{"b":1e400}', "b is 1e400, which is no number"),
        (b'{"a":9223372036854775808}', "a is 9223372036854775808, which is no number"),
        (b'{"a":1.5}', "a is 1.5, which is no number"),
        (b'{"a":"1"}', "a is the string '1', where the schema has an integer"),
        (b'{"b":"1"}', "b is the string '1', where the schema has a number"),
        (b'{"s":1}', "s is 1, where the schema has a string"),
        (b'{"f":"true"}', "where the schema has a boolean"),
        (b'{"f":0}', "where the schema has a boolean"),
        (b'{"t":"yesterday"}', "t is the string 'yesterday', where the schema has a date-time"),
        (b'{"t":"2024-13-01T00:00:00Z"}', "where the schema has a date-time"),
        (b'{"t":""}', "where the schema has a date-time"),
        (b'{"d":"2024-02-30"}', "where the schema has a date"),
        (b'{"d":"2024-02-01T00:00:00Z"}', "where the schema has a date"),
        (b'{"l":{}}', "l is an object, where the schema has an array"),
        (b'{"l":[1,"x"]}', "l[1] is the string 'x', where the schema has an integer"),
        (b'{"m":[]}', "m is an array, where the schema has an object"),
        (b'{"m":{"k":"x"}}', "m.k is the string 'x'"),
        (b'{"o":{"x":{}}}', "o.x is an object, where the schema has an integer"),
        (b'{"a":1,"a":1}', "the value has the key 'a' twice"),
        (b'{"a":1,"\\u0061":1}', "the value has the key 'a' twice"),
        (b'{"o":{"x":1,"x":2}}', "o has the key 'x' twice"),
        (b'{"s":"\\ud800"}', "s has half a surrogate pair"),
        (b'{"s":"\\udc00\\ud800"}', "s has half a surrogate pair"),
        (b'{"m":{"\\ud800":1}}', ""),
        (f'{{"j":{DEEP}}}'.encode(), "nests deeper than 128 levels"),
        (f'{{"unknown":{DEEP}}}'.encode(), "nests deeper than 128 levels"),
    ],
)
def test_what_stays_bytes_is_explained(text: bytes, why: str) -> None:
    assert outcome(framed(text)) == KIND_RAW
    told = JsonCodec().explain(framed(text), SHAPE)
    assert told.startswith("by the schema 1: ")
    assert why in told
    assert len(told) < 200


@pytest.mark.parametrize(
    "text",
    [
        b'{"b":123456789012345678901234567890}',
        b'{"b":1e-400}',
        b'{"b":0.1000000000000000055511151231257827}',
        b'{"b":1.50E+1}',
        b'{"a":-0}',
        b'{"a":1.0}',
        b'{"unknown":1}',
        b'{"a":1,"unknown":1,"unknown":2}',
        b'{"m":{"k":1,"k":2}}',
        b'{"m":{' + b",".join(b'"k%d":1' % number for number in range(100)) + b"}}",
        b'{"s":"\\u00e9\xc3\xa9"}',
        b'{"s":"\\u003C","j":"x"}',
        b'{"t":"2016-12-31T23:59:60Z"}',
        b'{"l":[1, 2,3]}',
    ],
)
def test_what_no_template_tells_keeps_its_bytes_or_comes_back(text: bytes) -> None:
    assert outcome(framed(text)) in (KIND_TYPED, KIND_TYPED_AND_RAW)


@pytest.mark.parametrize(
    "text",
    [
        b'{"\\u0061":1}',
        b'{"s":"\\u0000"}',
        b'{"j":"\\ud800"}',
        b'{"j":{"a":1,"a":2}}',
        b'{"j":1e400}',
        b'{"j":[1, 2,3]}',
        b' \n{ "a" : 1 , "b":2.5,"s" :"x" }\t',
        b'{"s":"\xf0\x9f\x98\x80\\ud83d"}'.replace(b"\\ud83d", b""),
        ('{"j":' + "[" * 100 + "]" * 100 + "}").encode(),
    ],
)
def test_odd_texts_are_columns_alone(text: bytes) -> None:
    assert outcome(framed(text)) == KIND_TYPED


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\0\0\0", b"\x01\0\0\0\x01{}", b"\0\0\0\0\x02{}", b'{"a":1}'])
def test_values_without_a_known_schema_stay_bytes(value: bytes) -> None:
    assert outcome(value) == KIND_RAW
    assert "schema" in JsonCodec().explain(value, SHAPE)


def test_long_values() -> None:
    values = [
        framed('{"s":"' + "x" * 20_000_000 + '"}'),
        framed('{"s":"' + "\\u0001" * 3_000_000 + '"}'),
        framed('{"l":[' + ",".join(map(str, range(1_000_000))) + "]}"),
        framed('{"j":' + "[" * 5_000_000),
        framed('{"unknown":"' + "x" * 20_000_000 + '"}'),
    ]
    for value in values:
        outcome(value)


def test_two_thousand_columns() -> None:
    names = [f"c{number}" for number in range(2000)]
    shape = shape_of({"type": "object", "properties": {name: {"type": "integer"} for name in names}})

    def text(order: list[str]) -> bytes:
        return framed("{" + ",".join(f'"{name}":{number}' for number, name in enumerate(order)) + "}")

    values: list[bytes | None] = [text(names)] * 5 + [text(names[::-1])] * 5 + [text(names[::2])]
    rows = rows_of(values, shape)
    assert rows["_kind"].to_pylist() == [KIND_TYPED] * 11
    assert values_of(rows, shape) == values


def test_rows_that_all_want_a_template_of_their_own_do_not_take_for_ever() -> None:
    values: list[bytes | None] = [
        framed('{"a":1,"l":[' + ", ".join(["1"] * 2000) + "," + " " * (number % 7000) + "2]}") for number in range(1500)
    ]
    started = time.process_time()
    rows = rows_of(values, SHAPE)
    assert time.process_time() - started < 20
    assert values_of(rows, SHAPE) == values


def test_text_of_an_engine_that_is_none_makes_no_value() -> None:
    rows = rows_of([framed('{"s":"\\u00e9"}')], SHAPE)
    assert rows["_kind"].to_pylist() == [KIND_TYPED]
    place = rows.schema.get_field_index("s")
    cut = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xe2")])
    assert values_of(rows.set_column(place, rows.schema.field(place), cut), SHAPE) == [b""]
