"""Any JSON Schema, values of it, and values that are written in styles that no library has together."""

import json
import random
import string
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


WORDS = [
    "apple",
    "banana",
    "Zürich",
    "naïve",
    "北京",
    "emoji 😀",
    "tab\there",
    'say "hi"',
    "a/b\\c",
    "<b>Tom & Jerry's</b>",
]


def random_word(source: random.Random) -> str:
    letters = string.ascii_letters + string.digits + " -_."
    return source.choice(WORDS) if source.random() < 0.2 else "".join(source.choices(letters, k=source.randint(3, 20)))
