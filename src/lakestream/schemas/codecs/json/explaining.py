"""Why bytes are no value of a JSON Schema's columns: read slowly, until something is wrong."""

import json
import re
from datetime import date
from typing import Any, Final

from lakestream.schemas.codecs.kernels.json.layout import MAX_JSON_LEVELS
from lakestream.schemas.json import JsonType, JsonTypeName

_NESTED: Final = f"it nests deeper than {MAX_JSON_LEVELS} levels"
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?(?:[Zz]|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_NAMES: Final[dict[JsonTypeName, str]] = {
    "object": "an object",
    "map": "an object",
    "array": "an array",
    "string": "a string",
    "long": "an integer",
    "double": "a number",
    "boolean": "a boolean",
    "date": "a date",
    "time": "a date-time",
}
_SHOWN: Final = 30


class _Wrong(Exception):
    """With the sentence."""


class _Number(str):
    """As it is written."""

    __slots__ = ()


def explain_json(root: JsonType, data: bytes) -> str:
    """Of a value without framing. Empty: nothing is wrong with it as far as this reads."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 at its byte {error.start}"
    if text.startswith("\ufeff"):
        return "it begins with a byte order mark, which JSON has none of"
    try:
        found = json.loads(
            text,
            object_pairs_hook=_Pairs,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
        )
        if _levels(text) > MAX_JSON_LEVELS:
            return _NESTED
        _check(root, found, "", is_root=True)
    except _Wrong as wrong:
        return str(wrong)
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg} at its character {error.pos}"
    except RecursionError:
        return _NESTED
    return ""


class _Pairs(list[tuple[str, Any]]):
    """An object with all that it says."""


def _levels(text: str) -> int:
    """How deep it nests. It is JSON."""
    deepest = level = 0
    for token in _BRACKETS.finditer(text):
        if token[0] in "[{":
            level += 1
            deepest = max(deepest, level)
        elif token[0] in "]}":
            level -= 1
    return deepest


def _no_constant(text: str) -> Any:
    raise _Wrong(f"{text} is no JSON")


def _check(kind: JsonType, found: Any, path: str, *, is_root: bool = False) -> None:
    if found is None:
        if is_root and kind.kind == "object":
            raise _Wrong("it is null, where the schema has an object")
        return
    _check_type(kind, found, path)
    if isinstance(found, _Pairs):
        keys = [key for key, _ in found]
        fields = dict(zip(kind.names, kind.below, strict=True)) if kind.kind == "object" else {}
        for key in fields:
            if keys.count(key) > 1:
                raise _Wrong(f"{_told(path)} has the key {key[:_SHOWN]!r} twice")
        for key, value in found:
            if kind.kind == "map":
                _check(kind.below[0], value, f"{path}.{key[:_SHOWN]}")
            elif key in fields:
                _check(fields[key], value, f"{path}.{key[:_SHOWN]}")
    elif isinstance(found, list) and kind.kind == "array":
        for place, value in enumerate(found):
            _check(kind.below[0], value, f"{path}[{place}]")


def _check_type(kind: JsonType, found: Any, path: str) -> None:
    if kind.kind == "json":
        return
    shown = _shown(found)
    wanted = _NAMES[kind.kind]
    if kind.kind in ("object", "map"):
        holds = isinstance(found, _Pairs)
    elif kind.kind == "array":
        holds = isinstance(found, list) and not isinstance(found, _Pairs)
    elif kind.kind == "boolean":
        holds = isinstance(found, bool)
    elif kind.kind in ("long", "double"):
        holds = isinstance(found, _Number)
        if holds and not _fits(kind, found):
            raise _Wrong(f"{_told(path)} is {shown}, which is no number that {wanted} of 64 bits holds")
    else:
        holds = isinstance(found, str) and not isinstance(found, _Number)
        if holds and any("\ud800" <= each <= "\udfff" for each in found):
            raise _Wrong(f"{_told(path)} has half a surrogate pair, which no UTF-8 has")
        holds = holds and _is_time(kind, found)
    if not holds:
        raise _Wrong(f"{_told(path)} is {shown}, where the schema has {wanted}")


def _fits(kind: JsonType, text: str) -> bool:
    number = float(text)
    if kind.kind == "double":
        return abs(number) < float("inf")
    return abs(number) < 2.0**64 and number == int(number) and -(2**63) <= int(number) < 2**63


def _is_time(kind: JsonType, text: str) -> bool:
    if kind.kind not in ("date", "time"):
        return True
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return False
    if kind.kind == "date":
        return bool(_DATE.fullmatch(text))
    found = _TIME.fullmatch(text)
    return found is not None and int(found[1]) < 24 and int(found[2]) < 60 and int(found[3] or 0) <= 60


def _told(path: str) -> str:
    return path.removeprefix(".") or "the value"


def _shown(found: Any) -> str:
    if isinstance(found, list):
        return "an object" if isinstance(found, _Pairs) else "an array"
    if isinstance(found, bool):
        return "a boolean"
    return f"{found[:_SHOWN]}" if isinstance(found, _Number) else f"the string {found[:_SHOWN]!r}"
