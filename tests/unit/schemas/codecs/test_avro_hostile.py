"""Avro values that somebody made to do harm: each costs its own row at most, and little time."""

import json
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from support.schemas.avro import framed, written
from support.schemas.values import Values, binary, values_in

from lakestream.schemas.codecs.avro.codec import CODEC, AvroCodec
from lakestream.schemas.shapes import with_schema
from lakestream.table.shape import RAW, TableShape, ValueSchema

CODECS = AvroCodec()
MOST = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
"""The largest number that there is."""
LEAST = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"


def shape_of(schema: Any) -> TableShape:
    return with_schema(msgspec.structs.replace(RAW, codec=CODEC), ValueSchema(1, json.dumps(schema)))


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}


def states(schema: Any, *values: bytes) -> list[str]:
    """Of values without framing, which are surrounded by good ones that must not notice."""
    shape = shape_of(schema)
    sent: Values = [framed(1, value) for value in values]
    found = CODECS.decode(pa.array(sent, pa.binary()), shape)
    for array in found.columns.values():
        array.validate(full=True)
    ids = np.where(found.is_exact, 1, -1)
    kept = [None if exact else value for value, exact in zip(sent, found.is_exact, strict=True)]
    assert values_in(CODECS.encode(found.columns, ids, binary(kept), shape)) == sent
    for value, is_typed in zip(sent, found.is_typed, strict=True):
        assert (CODECS.explain(value or b"", shape) == "the value is as it should be") == is_typed
    return [
        "exact" if exact else "typed" if is_typed else "raw"
        for is_typed, exact in zip(found.is_typed, found.is_exact, strict=True)
    ]


PAIR = record(("a", "string"), ("b", {"type": "array", "items": "long"}))
GOOD = written(PAIR, {"a": "x", "b": [1, -1]})


@pytest.mark.parametrize(
    "bad",
    [
        MOST,
        LEAST,
        b"\x80" * 10,
        b"\xff" * 10 + b"\x01",
        b"\x80" * 1000,
        b"\x02a" + MOST,  # items
        b"\x02a" + LEAST + MOST,  # items in so many bytes
        b"\x02a\x01" + MOST,
        b"\x02a\x01\x01\x02",  # a block of a negative size
        b"\x02a" + b"\x02\x02" * 50,  # blocks without an end
        b"\x01a",
        GOOD[:-1],
        GOOD[:1],
    ],
)
def test_what_bytes_claim_is_believed_within_them(bad: bytes) -> None:
    assert states(PAIR, GOOD, bad, GOOD) == ["exact", "raw", "exact"]


def test_every_cut_of_a_value() -> None:
    found = states(PAIR, *(GOOD[:size] for size in range(len(GOOD) + 1)))
    assert found == ["raw"] * len(GOOD) + ["exact"]


def test_very_long_values() -> None:
    long = written(PAIR, {"a": "x" * 20_000_000, "b": [7]})
    many = b"\x02a" + written("long", 5_000_000) + b"\x01" * 5_000_000 + b"\0"
    assert states(PAIR, GOOD, long, many, long[:-1], GOOD) == ["exact", "exact", "exact", "raw", "exact"]


def nested(levels: int) -> tuple[Any, bytes]:
    """Records in each other, and a value of theirs."""
    schema: Any = "int"
    for level in range(levels):
        schema = record(("a", schema), name=f"R{level}")
    return schema, b"\x0e"


@pytest.mark.parametrize(("levels", "state"), [(1, "exact"), (12, "exact"), (13, "typed"), (45, "typed")])
def test_schemas_that_nest(levels: int, state: str) -> None:
    schema, value = nested(levels)
    assert states(schema, value, b"", value) == [state, "raw", state]


def test_a_schema_of_200_levels_has_a_trouble() -> None:
    schema, _ = nested(200)
    assert "levels" in shape_of(schema).schemas[0].trouble


def test_arrays_in_arrays() -> None:
    schema: Any = "null"
    for _ in range(10):
        schema = {"type": "array", "items": schema}
    inside = b"\x02" * 9 + written("long", 60_000) + b"\0" * 10
    bomb = b"\x02" * 9 + written("long", 70_000) + b"\0" * 10
    assert states(schema, inside, bomb) == ["exact", "raw"]


def test_union_branches_and_symbols_that_there_are_not() -> None:
    schema = record(("u", ["null", "int", "string"]), ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}))
    good = written(schema, {"u": 5, "e": "B"})
    assert states(schema, good, b"\x06\0", b"\x01\0", MOST + b"\0", b"\0\x04", b"\0" + MOST, b"\0" + LEAST) == [
        "exact",
        *["raw"] * 6,
    ]


def test_keys_by_the_thousand() -> None:
    """Too many to compare with each other: the bytes stay beside."""
    schema = {"type": "map", "values": "null"}
    few, many = ({f"k{number}": None for number in range(count)} for count in (64, 65))
    assert states(schema, written(schema, few), written(schema, many)) == ["exact", "typed"]
