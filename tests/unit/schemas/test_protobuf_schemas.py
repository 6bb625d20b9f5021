"""Schemas of Protobuf in a table: messages, evolution, framing, what has no column but of text."""

import json
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from support.schemas.orders import (
    CANCELLED,
    CODECS,
    EMPTY,
    ORDERS,
    Order,
    decoded,
    order,
    proto,
    rows,
    shape_of,
)
from support.schemas.protobuf import framed, kept_class
from support.schemas.values import Values, binary, parquet_of, read_parquet, rows_of, values_in, values_of

from lakestream.schemas.codecs import install
from lakestream.schemas.codecs.protobuf.codec import PLAIN_CODEC, ProtobufCodec
from lakestream.schemas.shapes import with_plain_schema, with_schema
from lakestream.table.shape import ValueSchema


def test_a_value_says_which_message_it_is() -> None:
    """The first that no other refers to has the columns, another is a struct; its index comes back with it."""
    why = framed(1, CANCELLED, b"\n\x01x")
    sent: Values = [order(id=1), why, framed(1, CANCELLED, b""), framed(1, 0, b""), framed(1, 3, b"")]
    found = decoded(ORDERS, sent)
    assert found.is_exact.tolist() == [True, True, True, False, False]
    assert found.columns["Cancelled"].to_pylist() == [None, {"why": "x"}, {"why": ""}, None, None]
    assert found.columns["id"].to_pylist() == [1, None, None, None, None]
    assert "t.Item" in CODECS.explain(sent[3] or b"", ORDERS)
    assert "message 3" in CODECS.explain(sent[4] or b"", ORDERS)


@pytest.mark.parametrize(
    "indexes",
    [
        b"\2\0",
        b"\x82\0\2",
        b"\2\x82\0",
        b"\2\1",
        b"\4\2\0",
        b"",
        b"\2",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\2\x80\x80\x80\x80\1",
    ],
)
def test_indexes_that_are_not_written_like_that_again_stay_bytes(indexes: bytes) -> None:
    shape = shape_of(proto("message A { int32 a = 1; } message B { int32 b = 1; } message C { int32 c = 1; }"))
    value = b"\0\0\0\0\1" + indexes
    assert not decoded(shape, [value]).is_typed.any()
    assert CODECS.explain(value, shape)


RECURSIVE = proto(
    "message Node { double value = 1; Node next = 2; repeated Node children = 3; map<string, Node> by = 4; }"
)


def test_what_refers_to_itself_is_json_beside_its_bytes() -> None:
    shape = shape_of(RECURSIVE)
    node = kept_class(shape.schemas[0], "t.Node")
    leaf = {"value": 1.5}
    message = node(next={"next": leaf, "children": [leaf, {}]}, children=[leaf], by={"k": leaf})
    sent = [node(**leaf).SerializeToString(), message.SerializeToString()]
    found = decoded(shape, [framed(1, 0, each) for each in sent])
    assert found.is_exact.tolist() == [True, False]
    assert json.loads(found.columns["next"][1].as_py()) == {"next": leaf, "children": [leaf, {}]}
    assert [json.loads(each) for each in found.columns["children"][1].as_py()] == [leaf]
    assert json.loads(dict(found.columns["by"][1].as_py())["k"]) == leaf


def test_200_levels_stay_bytes() -> None:
    shape = shape_of(RECURSIVE)
    deep = b""
    for _ in range(200):
        deep = b"\x12" + _varint(len(deep)) + deep
    found = decoded(shape, [framed(1, 0, deep), framed(1, 0, b"")])
    assert found.is_typed.tolist() == [False, True]
    assert "levels" in CODECS.explain(framed(1, 0, deep), shape)
    groups = b"\xa3\x06" * 200 + b"\xa4\x06" * 200
    assert decoded(shape, [framed(1, 0, groups)]).is_typed.tolist() in ([True], [False])
    assert CODECS.explain(framed(1, 0, b"\xa3\x06" * 100_000), shape)


def _varint(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def test_any_json_of_googles_is_text() -> None:
    shape = shape_of(
        'syntax = "proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/any.proto";'
        'import "google/protobuf/duration.proto";'
        "message M { google.protobuf.Struct s = 1; google.protobuf.Any a = 2; google.protobuf.Duration d = 3; }"
    )
    kind = kept_class(shape.schemas[0], "M")
    told = {"a": [1, "x", None, {"b": True}], "c": {}}
    message: Any = kind(a={"type_url": "t", "value": b"v"}, d={"seconds": 5})
    plain = message.SerializeToString()
    message.s.update(told)
    found = decoded(shape, [framed(1, 0, plain), framed(1, 0, message.SerializeToString())])
    assert found.is_exact.tolist() == [True, False]
    assert json.loads(found.columns["s"][1].as_py()) == told
    assert found.columns["a"][0].as_py() == {"type_url": "t", "value": b"v"}
    assert found.columns["d"][0].as_py() == {"seconds": 5, "nanos": 0}


def test_values_without_framing_are_of_the_schema_that_the_shape_names() -> None:
    shape = msgspec.structs.replace(ORDERS, codec=PLAIN_CODEC)
    codec = ProtobufCodec(is_framed=False)
    sent: Values = [Order(id=number).SerializeToString() for number in range(4)]
    assert not codec.decode(pa.array(sent, pa.binary()), shape).is_typed.any()
    shape = with_plain_schema(shape, 1)
    found = decoded(shape, [*sent, None, b"?"], codec)
    assert found.is_exact.tolist() == [True] * 4 + [False] * 2
    assert found.schema_ids.to_pylist() == [1] * 4 + [None] * 2
    assert "ends" in codec.explain(b"\x08", shape)


def test_a_schema_that_the_shape_lacks_is_named() -> None:
    assert "schema 7" in CODECS.explain(framed(7, 0, b""), ORDERS)


def test_a_batch_of_several_schemas() -> None:
    """A field added, one widened, one renamed, one gone, symbols in another order; the message is elsewhere."""
    first = proto("message R { int32 a = 1; string b = 2; K k = 3; enum K { NONE = 0; X = 1; } }")
    second = proto(
        "message Z { R r = 1; } message R { int64 a = 1; string renamed = 2; double more = 9; K k = 3;"
        "enum K { NONE = 0; Y = 2; X = 1; } }"
    )
    shape = shape_of(first, second)
    names = [column.name for column in shape.value_columns]
    assert names == ["a", "b", "k", "more", "Z"]
    one, two = kept_class(shape.schemas[0], "t.R"), kept_class(shape.schemas[1], "t.R")
    sent: Values = [
        framed(1, 0, one(a=-5, b="x", k=1).SerializeToString()),
        framed(2, 1, two(a=2**40, renamed="y", k=2, more=0.5).SerializeToString()),
        framed(1, 0, one(a=2**31 - 1).SerializeToString()),
        framed(2, 1, b""),
    ]
    found = decoded(shape, sent)
    assert found.is_exact.all()
    assert found.columns["a"].to_pylist() == [-5, 2**40, 2**31 - 1, 0]
    assert found.columns["b"].to_pylist() == ["x", "y", "", ""]
    assert found.columns["k"].to_pylist() == ["X", "Y", "NONE", "NONE"]
    assert found.columns["more"].to_pylist() == [None, 0.5, None, 0.0]


def test_columns_that_an_engine_changed_are_no_value() -> None:
    """What is then served does not hold against the record's checksum. A null where absent is the default is absent."""
    found = CODECS.decode(pa.array([order(id=number, kind=5) for number in range(3)], pa.binary()), ORDERS)
    item = ORDERS.value_columns
    kinds = {column.name: found.columns[column.name].type for column in item}
    whole = {"sku": "s", "count": 1, "prices": []}
    for name, changed in {
        "kind": [None, "GONE", "OLD"],
        "items": [None, [None], []],
        "deltas": [None, [None], []],
        "notes": [None, [None], []],
        "small": [None, 2**32, 0],
        "large": [None, -1, 0],
        "empty": [None, "{ }", None],
        "text": [None, "two of a oneof", None],
        "parent": [None, "{}", None],
    }.items():
        columns = {**found.columns, name: pa.array(changed, kinds[name])}
        if name == "text":
            columns["item"] = pa.array([None, whole, None], kinds["item"])
        made = values_in(CODECS.encode(columns, np.array([1, 1, 1]), binary([None] * 3), ORDERS))
        assert made[1] == b"", name
        assert made[0] == order(id=0, kind=0 if name == "kind" else 5), name


def test_what_is_read_back_from_parquet() -> None:
    install()
    sent: Values = [order(id=n, items=[{"sku": "s", "prices": [n]}] * (n % 3), counts={"k": n}) for n in range(100)]
    sent[7], sent[50] = None, b"garbage"
    table = read_parquet(parquet_of(rows_of(sent, ORDERS), ORDERS))
    assert table["_value"].null_count == 99
    assert values_of(table, ORDERS) == sent
    assert values_of(table.slice(33, 40), ORDERS) == sent[33:73]
    assert values_of(pa.concat_tables([table.slice(60), table.slice(0, 60)]), ORDERS) == [*sent[60:], *sent[:60]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (proto("message M { optional group G = 1 { optional int32 a = 1; } }", "proto2"), "group"),
        (proto("message M { int32 a = 1 }"), "Invalid schema"),
        (proto("enum E { A = 0; }"), "no message"),
        ("", "no message"),
        (proto("message M { Gone g = 1; }"), "Gone"),
    ],
)
def test_a_schema_without_columns_has_a_trouble(text: str, why: str) -> None:
    shape = with_schema(EMPTY, ValueSchema(1, text, format="PROTOBUF"))
    assert why in shape.schemas[0].trouble
    assert shape.columns == EMPTY.columns
    assert why in CODECS.explain(framed(1, 0, b""), shape)


def test_presence_of_proto2() -> None:
    shape = shape_of(
        proto("message M { required int32 a = 1; optional int32 b = 2 [default = 5]; repeated int32 c = 3; }", "proto2")
    )
    found = decoded(shape, [framed(1, 0, each) for each in (b"\x08\0", b"\x08\x01\x10\0\x18\1\x18\2", b"\x10\1")])
    assert found.is_exact.tolist() == [True, True, False]
    assert not found.is_typed[2]
    assert rows(found)[:2] == [{"a": 0, "b": None, "c": []}, {"a": 1, "b": 0, "c": [1, 2]}]
    assert "required" in CODECS.explain(framed(1, 0, b"\x10\1"), shape)
