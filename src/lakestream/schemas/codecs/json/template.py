"""Templates: all of a text in JSON but its values, as text that says it again to anybody.

That is what the column `_format` holds, version 1: a JSON object that docs/FORMATS.md explains. A template is complete
in itself, so rows keep theirs through whatever an engine makes of their file.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from lakestream.errors import StorageError
from lakestream.schemas.codecs.json.numbers import MOST_DECIMALS, NumberForm
from lakestream.schemas.codecs.json.times import TimeForm

VERSION: Final = 1
LeafName = Literal["string", "long", "double", "boolean", "date", "time", "json"]
_LETTERS: Final[dict[str, LeafName]] = {"s": "string", "l": "long", "b": "boolean", "d": "date", "j": "json"}
_LETTER_OF: Final = {kind: letter for letter, kind in _LETTERS.items()}
SHORT: Final = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
"""Characters that may be written behind a backslash, and as what."""
LINE_ENDS: Final = "\u2028\u2029"


@dataclass(frozen=True, slots=True)
class Escapes:
    """`short`: characters that are written as a backslash and a letter; `code`: others that are written as their code,
    beside control characters, which have to be one of both; `is_ascii`: as all are that are not ASCII; `is_upper`: the
    code's digits."""

    short: str = '"\\\b\f\n\r\t'
    code: str = ""
    is_ascii: bool = False
    is_upper: bool = False


@dataclass(frozen=True, slots=True)
class Spaces:
    """What is between the brackets of an object, array or map beside its members: before the first, between two (with
    the comma), behind the last, and in one that has none."""

    first: str = ""
    between: str = ","
    last: str = ""
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Leaf:
    kind: LeafName
    form: "NumberForm | TimeForm | None" = None


@dataclass(frozen=True, slots=True)
class MemberNode:
    """`key` with its quotes and the colon; `is_left_out`: where the value is null, which is written otherwise.
    `between`: what is before it if it is not the first, if that is not as before the others."""

    key: str
    node: "Node"
    is_left_out: bool
    between: str | None = None

    @property
    def name(self) -> str:
        return _name_of(self.key)


@dataclass(frozen=True, slots=True)
class ObjectNode:
    members: tuple[MemberNode, ...]
    spaces: Spaces


@dataclass(frozen=True, slots=True)
class ArrayNode:
    items: "Node"
    spaces: Spaces


@dataclass(frozen=True, slots=True)
class MapNode:
    """`colon` with the space around it."""

    values: "Node"
    spaces: Spaces
    colon: str


Node = Leaf | ObjectNode | ArrayNode | MapNode


@dataclass(frozen=True, slots=True)
class Template:
    root: Node
    escapes: Escapes
    before: str = ""
    after: str = ""


class _Document(msgspec.Struct, omit_defaults=True):
    """As it is in the column."""

    v: int
    value: Any = None
    before: str = ""
    after: str = ""
    short: str = '"\\\b\f\n\r\t'
    code: str = ""
    ascii: bool = False
    upper: bool = False
    numbers: list[list[Any]] = []
    times: list[list[Any]] = []


def text_of(template: Template) -> str:
    numbers: list[NumberForm] = []
    times: list[TimeForm] = []

    def told(node: Node) -> Any:
        match node:
            case Leaf("double", NumberForm() as form):
                if form not in numbers:
                    numbers.append(form)
                return f"n{numbers.index(form)}"
            case Leaf("time", TimeForm() as form):
                if form not in times:
                    times.append(form)
                return f"t{times.index(form)}"
            case Leaf(kind):
                return _LETTER_OF[kind]
            case ObjectNode(members, spaces):
                return {"members": [_member(each, told(each.node)) for each in members], "space": _spaces(spaces)}
            case ArrayNode(items, spaces):
                return {"items": told(items), "space": _spaces(spaces)}
            case MapNode(values, spaces, colon):
                return {"values": told(values), "space": _spaces(spaces), "colon": colon}

    escapes = template.escapes
    value = told(template.root)
    document = _Document(
        VERSION,
        value,
        template.before,
        template.after,
        escapes.short,
        escapes.code,
        escapes.is_ascii,
        escapes.is_upper,
        [[each.decimals] if each.decimals >= 0 else list(each[:-1]) for each in numbers],
        [list(each) for each in times],
    )
    return msgspec.json.encode(document).decode()


def _member(member: MemberNode, node: Any) -> list[Any]:
    found = [member.key, node, int(member.is_left_out)]
    return found if member.between is None else [*found, member.between]


def _spaces(spaces: Spaces) -> list[str]:
    return [spaces.first, spaces.between, spaces.last, spaces.empty]


_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BETWEEN: Final = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
_COLON: Final = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_KEY: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"[ \t\r\n]*:[ \t\r\n]*')
_MARK: Final = re.compile(r"[eE]\+?")
_MAX_LEVELS: Final = 64
_documents: Final = msgspec.json.Decoder(_Document)
_strings: Final = msgspec.json.Decoder(str)


def parse_template(text: str) -> Template | None:
    """None: it is none, so nothing can be told from it. What it makes of any values is JSON. Raises `StorageError` for
    a version that is not known here."""
    try:
        found = _documents.decode(text)
        if found.v != VERSION:
            raise StorageError(
                f"the column _format has templates of version {found.v}: this release reads version {VERSION}, "
                "a newer one wrote them"
            )
        numbers = [_number_form(each) for each in found.numbers]
        times = [_time_form(each) for each in found.times]
        escapes = Escapes(found.short, found.code, found.ascii, found.upper)
        codes = set(found.code) - set(LINE_ENDS)
        if not set(found.short) <= set(SHORT) or not all(each < "\x80" for each in codes):
            return None
        if len(set(found.code) & set(LINE_ENDS)) == 1:
            return None
        root = _Reader(numbers, times).node(found.value, 0)
        return Template(root, escapes, _matched(_SPACE, found.before), _matched(_SPACE, found.after))
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError, KeyError):
        return None


class _Reader:
    def __init__(self, numbers: Sequence[NumberForm], times: Sequence[TimeForm]) -> None:
        self._numbers = numbers
        self._times = times

    def node(self, found: Any, level: int) -> Node:
        if level > _MAX_LEVELS:
            raise ValueError("too deep")
        if isinstance(found, str):
            if found in _LETTERS:
                return Leaf(_LETTERS[found])
            number = int(found[1:]) if found[1:].isdecimal() else -1
            if number < 0 or found[0] not in "nt":
                raise ValueError(found)
            return Leaf("double", self._numbers[number]) if found[0] == "n" else Leaf("time", self._times[number])
        first, between, last, empty = found["space"]
        spaces = Spaces(
            _matched(_SPACE, first), _matched(_BETWEEN, between), _matched(_SPACE, last), _matched(_SPACE, empty)
        )
        if "members" in found:
            return ObjectNode(tuple(self._member(each, level) for each in found["members"]), spaces)
        if "items" in found:
            return ArrayNode(self.node(found["items"], level + 1), spaces)
        return MapNode(self.node(found["values"], level + 1), spaces, _matched(_COLON, found["colon"]))

    def _member(self, found: Any, level: int) -> MemberNode:
        key, node, is_left_out, *rest = found
        between = _matched(_BETWEEN, rest[0]) if rest else None
        return MemberNode(_matched(_KEY, key), self.node(node, level + 1), bool(is_left_out), between)


def _matched(pattern: re.Pattern[str], text: Any) -> str:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(text)
    return text


def _number_form(found: list[Any]) -> NumberForm:
    if len(found) == 1:
        form = NumberForm(decimals=found[0])
        _check(isinstance(found[0], int) and 0 <= found[0] <= MOST_DECIMALS)
        return form
    form = NumberForm(*found)
    _check(all(isinstance(each, int) and -20 <= each <= 30 for each in (form.lowest, form.highest)))
    _check(form.whole in ("", ".0") and form.single in ("", ".0") and bool(_MARK.fullmatch(form.mark)))
    _check(isinstance(form.exponent_digits, int) and 1 <= form.exponent_digits <= 3 and len(found) == 6)
    return form


def _time_form(found: list[Any]) -> TimeForm:
    form = TimeForm(*found)
    form.check()
    return form


def _check(holds: bool) -> None:
    if not holds:
        raise ValueError("no form")


def _name_of(key: str) -> str:
    """What a key says."""
    return _strings.decode(key[: key.rindex('"') + 1])
