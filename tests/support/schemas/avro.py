"""Any Avro schema, and values of it as a producer's library writes them."""

import decimal
import io
import json
import math
from collections.abc import Sequence
from typing import Any

import fastavro
import hypothesis.strategies as st

PREFIX = b"\0"
NAMES = st.sampled_from(["a", "B", "b", "value", "_offset", "_partition", "id", "ID", "item", "element", "key"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100)
INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(-100, 100)

Schema = Any
Typed = tuple[Schema, st.SearchStrategy[Any]]


def framed(schema_id: int, value: bytes) -> bytes:
    return PREFIX + schema_id.to_bytes(4, "big") + value


def written(schema: Schema, value: Any) -> bytes:
    """By fastavro, which other producers agree with."""
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return sink.getvalue()


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda number: decimal.Decimal(number).scaleb(-scale, decimal.Context(60)))


def _usual(number: float) -> float:
    """There are many kinds of NaN: engines keep one."""
    return math.nan if math.isnan(number) else number


LEAVES: Sequence[Typed] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", INTS),
    ("long", LONGS),
    ("float", st.floats(width=32).map(_usual)),
    ("double", st.floats().map(_usual)),
    ("bytes", st.binary(max_size=12)),
    ("string", TEXT),
    ({"type": "int", "logicalType": "date"}, INTS),
    ({"type": "int", "logicalType": "time-millis"}, INTS),
    ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(-(10**14), 10**14)),
    ({"type": "long", "logicalType": "timestamp-micros"}, LONGS),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, LONGS),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, _decimals(9, 2)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}, _decimals(38, 10)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 0}, _decimals(60, 0)),
]
"""fastavro writes numbers for dates and times as they are."""


class _Names:
    """No two types have one name."""

    def __init__(self) -> None:
        self._made = 0

    def next(self) -> str:
        self._made += 1
        return f"T{self._made}"


def _key(schema: Schema) -> str:
    """What a union may have once only."""
    if isinstance(schema, dict):
        return str(schema.get("name") or schema["type"])
    return str(schema)


@st.composite
def typed(draw: st.DrawFn, depth: int = 3, names: _Names | None = None) -> Typed:
    """A schema and its values."""
    names = names or _Names()
    kind = draw(st.sampled_from(["leaf", "leaf", "enum", "fixed", "record", "array", "map", "optional", "union"]))
    if depth == 0 or kind == "leaf":
        return draw(st.sampled_from(LEAVES))
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from("ABCDEFG"), min_size=1, unique=True))
        return {"type": "enum", "name": names.next(), "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(0, 5))
        return {"type": "fixed", "name": names.next(), "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "record":
        return draw(records(depth, names))
    if kind == "array":
        items, values = draw(typed(depth - 1, names))
        return {"type": "array", "items": items}, st.lists(values, max_size=4)
    if kind == "map":
        items, values = draw(typed(depth - 1, names))
        return {"type": "map", "values": items}, st.dictionaries(TEXT, values, max_size=4)
    count = 1 if kind == "optional" else draw(st.integers(2, 4))
    found = [each for each in (draw(typed(depth - 1, names)) for _ in range(count)) if not isinstance(each[0], list)]
    branches = {_key(schema): (schema, values) for schema, values in [("null", st.none()), *found]}
    chosen = draw(st.permutations([*branches.values()]))
    # fastavro guesses a branch by the value unless it is named.
    return [schema for schema, _ in chosen], st.one_of(
        *(values.map(lambda value, schema=schema: _named(schema, value)) for schema, values in chosen)
    )


def _named(schema: Schema, value: Any) -> Any:
    return value if schema == "null" else (_key(schema), value)


@st.composite
def records(draw: st.DrawFn, depth: int = 3, names: _Names | None = None) -> Typed:
    names = names or _Names()
    fields = draw(st.lists(NAMES, max_size=5, unique=True))
    below = [draw(typed(depth - 1, names)) for _ in fields]
    schema = {
        "type": "record",
        "name": names.next(),
        "fields": [{"name": name, "type": kind} for name, (kind, _) in zip(fields, below, strict=True)],
    }
    return schema, st.fixed_dictionaries(dict(zip(fields, (values for _, values in below), strict=True)))


def damaged(value: bytes) -> st.SearchStrategy[bytes]:
    """Cut short, with bytes changed, put in or left out, or something else altogether."""
    places = st.integers(0, max(0, len(value) - 1))
    return st.one_of(
        places.map(lambda at: value[:at]),
        st.tuples(places, st.integers(0, 255)).map(lambda it: value[: it[0]] + bytes([it[1]]) + value[it[0] + 1 :]),
        st.tuples(places, st.binary(max_size=6)).map(lambda it: value[: it[0]] + it[1] + value[it[0] :]),
        st.tuples(places, st.integers(1, 5)).map(lambda it: value[: it[0]] + value[it[0] + it[1] :]),
        st.binary(max_size=40),
    )
