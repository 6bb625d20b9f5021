"""A text in JSON with all that its values leave out: spaces, keys and numbers as they are written."""

import json
import re
from dataclasses import dataclass
from typing import Final

from lakestream.schemas.codecs.json.template import Spaces

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_NUMBER: Final = re.compile(r"-?[0-9.eE+-]+")
_WORDS: Final = {"n": "null", "t": "true", "f": "false"}


@dataclass(frozen=True, slots=True)
class RawMember:
    """`key` with the colon; `between`: what is before it, if it is not the first."""

    key: str
    name: str
    value: "RawNode"
    between: str | None


@dataclass(frozen=True, slots=True)
class RawObject:
    members: tuple[RawMember, ...]
    spaces: Spaces


@dataclass(frozen=True, slots=True)
class RawArray:
    items: "tuple[RawNode, ...]"
    spaces: Spaces


@dataclass(frozen=True, slots=True)
class RawLeaf:
    """A string with its quotes, a number or a word."""

    text: str


RawNode = RawObject | RawArray | RawLeaf
NULL: Final = RawLeaf("null")


def parse_raw(text: str) -> tuple[str, RawNode, str]:
    """Of JSON that is known to be right: the space before it, the value, the space behind it."""
    reader = _Reader(text)
    before = reader.space()
    value = reader.value()
    return before, value, reader.space()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return found[0]

    def space(self) -> str:
        return self._take(_SPACE)

    def value(self) -> RawNode:
        first = self._text[self._at]
        if first == "{":
            return self._object()
        if first == "[":
            return self._array()
        if first == '"':
            return RawLeaf(self._take(_STRING))
        if first in _WORDS:
            self._at += len(_WORDS[first])
            return RawLeaf(_WORDS[first])
        return RawLeaf(self._take(_NUMBER))

    def _object(self) -> RawObject:
        self._at += 1
        space, members = self.space(), list[RawMember]()
        if self._text[self._at] == "}":
            self._at += 1
            return RawObject((), Spaces(empty=space))
        first, between = space, None
        while True:
            quoted = self._take(_STRING)
            key = quoted + self.space() + self._text[self._at]
            self._at += 1
            key += self.space()
            members.append(RawMember(key, json.loads(quoted), self.value(), between))
            between, is_last = self._between()
            if is_last:
                return RawObject(tuple(members), Spaces(first, _common_between(members), between))

    def _array(self) -> RawArray:
        self._at += 1
        first, items = self.space(), list[RawNode]()
        if self._text[self._at] == "]":
            self._at += 1
            return RawArray((), Spaces(empty=first))
        betweens: list[str] = []
        while True:
            items.append(self.value())
            between, is_last = self._between()
            if is_last:
                return RawArray(tuple(items), Spaces(first, betweens[0] if betweens else ",", between))
            betweens.append(between)

    def _between(self) -> tuple[str, bool]:
        """What is behind a value, and whether that was the last one."""
        space = self.space()
        mark = self._text[self._at]
        self._at += 1
        return (space + mark + self.space(), False) if mark == "," else (space, True)


def _common_between(members: list[RawMember]) -> str:
    found = [member.between for member in members if member.between is not None]
    return max(found, key=found.count) if found else ","
