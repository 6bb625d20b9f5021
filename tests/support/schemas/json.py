"""Any JSON Schema, values of it, and values that are written in styles that no library has together."""

import json
import random
import string
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import msgspec

from lakestream.schemas.codecs.json.codec import CODEC
from lakestream.schemas.shapes import with_plain_schema, with_schema
from lakestream.table.shape import RAW, TableShape, ValueSchema

PREFIX = b"\0\0\0\0\1"
NAMES = st.sampled_from(["a", "B", "b", "value", "_offset", "_format", "id", "ID", "user name", 'q"\\', "é", "", "a.b"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["<b>&'=/\u2028", "\x7f\x00\n", "😀"]
)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.decimals(-1000, 1000, places=2).map(float)

Typed = tuple[dict[str, Any], st.SearchStrategy[Any]]
"""A schema and its values."""


def framed(text: str | bytes) -> bytes:
    return PREFIX + (text.encode() if isinstance(text, str) else text)


def shape_of(*schemas: Any, codec: str = CODEC) -> TableShape:
    """With the schemas under the ids 1, 2, …"""
    shape = msgspec.structs.replace(RAW, codec=codec)
    for number, schema in enumerate(schemas, 1):
        shape = with_schema(shape, ValueSchema(number, json.dumps(schema), format="JSON"))
    return with_plain_schema(shape, 1) if "plain" in codec else shape


TREES = st.recursive(
    st.none() | st.booleans() | LONGS | DOUBLES | TEXT,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=3),
    max_leaves=6,
)
_LEAVES: list[Typed] = [
    ({"type": "string"}, TEXT),
    ({"type": "integer"}, LONGS),
    ({"type": "number"}, DOUBLES | LONGS),
    ({"type": "boolean"}, st.booleans()),
    ({"type": "string", "format": "date"}, st.dates().map(str)),
    ({"type": "string", "format": "date-time"}, st.datetimes().map(lambda time: time.isoformat() + "Z")),
    ({"type": "string", "format": "uuid"}, st.uuids().map(str)),
    ({"enum": ["x", "y"]}, st.sampled_from(["x", "y"])),
    ({"type": ["string", "null"]}, TEXT | st.none()),
    ({}, TREES),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, LONGS | st.none()),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, LONGS | TEXT),
]


def leaves() -> st.SearchStrategy[Typed]:
    return st.sampled_from(_LEAVES)


@st.composite
def typed(draw: st.DrawFn, depth: int = 3) -> Typed:
    kind = draw(st.sampled_from(["leaf", "object", "array", "map"] if depth else ["leaf"]))
    if kind == "leaf":
        return draw(leaves())
    if kind == "object":
        return draw(objects(depth))
    schema, values = draw(typed(depth - 1))
    if kind == "array":
        return {"type": "array", "items": schema}, st.lists(values, max_size=3)
    return {"type": "object", "additionalProperties": schema}, st.dictionaries(NAMES, values, max_size=3)


@st.composite
def objects(draw: st.DrawFn, depth: int = 3) -> Typed:
    fields = draw(st.dictionaries(NAMES, typed(depth - 1), min_size=1, max_size=4))
    schema = {"type": "object", "properties": {name: found for name, (found, _) in fields.items()}}
    own = {name: values | st.none() for name, (_, values) in fields.items()}
    return schema, st.fixed_dictionaries({}, optional=own)


@dataclass(frozen=True)
class Style:
    """How a producer writes, whoever it is. `space` gives the white space of a place."""

    colon: str = ":"
    comma: str = ","
    indent: int | None = None
    is_sorted: bool = False
    string: Callable[[str], str] = json.dumps
    number: Callable[[float], str] = repr


def written(value: Any, style: Style, level: int = 0) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return style.number(value)
    if isinstance(value, str):
        return style.string(value)
    if isinstance(value, list):
        parts = [written(each, style, level + 1) for each in value]
        return _bracketed("[", parts, "]", style, level)
    items = sorted(value.items()) if style.is_sorted else value.items()
    parts = [f"{style.string(key)}{style.colon}{written(each, style, level + 1)}" for key, each in items]
    return _bracketed("{", parts, "}", style, level)


def _bracketed(opening: str, parts: list[str], closing: str, style: Style, level: int) -> str:
    if style.indent is None or not parts:
        return opening + style.comma.join(parts) + closing
    line = "\n" + " " * style.indent * (level + 1)
    return opening + line + (style.comma.strip() + line).join(parts) + line[: -style.indent or None] + closing


def escaped(text: str, codes: str, short: str, *, is_ascii: bool, is_upper: bool) -> str:
    """By rules: `codes` are written as codes, `short` behind a backslash."""
    letters = dict(zip('"\\/\b\f\n\r\t', '"\\/bfnrt', strict=True))
    form = "\\u{:04X}" if is_upper else "\\u{:04x}"
    parts = []
    for each in text:
        if each in short:
            parts.append("\\" + letters[each])
        elif each in codes or each < " " or each in '"\\' or (is_ascii and each > "\x7f"):
            units = each.encode("utf-16-be", "surrogatepass")
            parts += [form.format(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2)]
        else:
            parts.append(each)
    return f'"{"".join(parts)}"'


SHORT = '"\\\b\f\n\r\t'


@st.composite
def styles(draw: st.DrawFn) -> Style:
    codes = draw(st.sampled_from(["", "\x7f", "<>&\u2028\u2029", "<>&='\u2028\u2029", "/"]))
    short = draw(st.sampled_from([SHORT, SHORT + "/", '"\\\n\r\t', ""]))
    is_ascii, is_upper = draw(st.booleans()), draw(st.booleans())
    return Style(
        draw(st.sampled_from([":", ": ", " : "])),
        draw(st.sampled_from([",", ", ", " ,"])),
        draw(st.sampled_from([None, None, 1, 2, 4])),
        draw(st.booleans()),
        lambda text: escaped(text, codes, short, is_ascii=is_ascii, is_upper=is_upper),
        draw(st.sampled_from([repr, "{:.2f}".format, "{:.6e}".format, "{:g}".format])),
    )


def damaged(text: bytes) -> st.SearchStrategy[bytes]:
    """Not much of it."""

    def spoil(at: int, cut: int, added: bytes) -> bytes:
        place = at % (len(text) + 1)
        return text[:place] + added + text[place + cut :]

    return st.builds(
        spoil,
        st.integers(0, 1000),
        st.integers(0, 3),
        st.sampled_from([b"", b"}", b"]", b",", b'"', b"\\", b"\xff", b"{", b"1", b"\\ud800", b"NaN", b"\0", b"e"]),
    )


ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "item": {"type": "string"},
        "customer": {"type": "string", "format": "uuid"},
        "price": {"type": "number"},
        "quantity": {"type": "integer"},
        "paid": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "note": {"type": ["string", "null"]},
        "rate": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "address": {"anyOf": [{"type": "null"}, {"$ref": "#/definitions/address"}]},
        "weights": {"type": "object", "additionalProperties": {"type": "number"}},
    },
    "definitions": {
        "line": {
            "type": "object",
            "properties": {
                "sku": {"type": "string"},
                "count": {"type": "integer"},
                "price": {"type": "number"},
                "gift": {"type": ["boolean", "null"]},
            },
        },
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}, "zip": {"type": "string"}},
        },
    },
}
_ODD_TEXTS = (
    *("Z\u00fcrich", "\u5317\u4eac\u5e02", "emoji \U0001f600", "tab\there", 'say "hi"', "a/b\\c", "x=y", "del\x7f"),
    *("<b>Tom & Jerry's</b>", "line\u2028end", "control\x01\x1f\x08\x0c"),
)


def _random_text(source: random.Random, odd: float) -> str:
    if source.random() < odd:
        return f"{source.choice(_ODD_TEXTS)}{source.randint(0, 99)}"
    return "".join(source.choices(string.ascii_letters + string.digits + " -_.", k=source.randint(3, 20)))


def _random_number(source: random.Random, odd: float) -> float:
    """A price, or anything."""
    if source.random() >= odd:
        return source.randint(100, 100_000) / 100
    return source.choice([source.random(), source.gauss(0, 1000), 10 ** source.uniform(-12, 25)])


def random_order(source: random.Random, odd_numbers: float, odd_texts: float) -> dict[str, Any]:
    def text() -> str:
        return _random_text(source, odd_texts)

    def number() -> float:
        return _random_number(source, odd_numbers)

    day, second, milli = source.randint(1, 28), source.randint(0, 59), source.randint(0, 999)
    lines = [
        {"sku": text(), "count": source.randint(1, 9), "price": number(), "gift": source.choice([None, True, False])}
        for _ in range(source.randint(0, 4))
    ]
    return {
        "id": source.randint(0, 10**12),
        "item": text(),
        "customer": str(uuid.UUID(int=source.getrandbits(128))),
        "price": number(),
        "quantity": source.randint(1, 20),
        "paid": source.random() < 0.7,
        "at": f"2024-05-{day:02}T10:11:{second:02}.{milli:03}Z",
        "note": None if source.random() < 0.4 else text(),
        "rate": number(),
        "tags": [text() for _ in range(source.randint(0, 3))],
        "lines": lines,
        "address": None if source.random() < 0.2 else {"street": text(), "city": text(), "zip": "3000"},
        "weights": {name: number() for name in source.sample(["kg", "lb", "net"], source.randint(0, 3))},
    }
