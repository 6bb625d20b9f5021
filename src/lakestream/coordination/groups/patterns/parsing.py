"""From the text of an expression to a tree, by RE2's grammar. What RE2 refuses is refused: back references, looking
around, possessive and repeated repetition."""

import string
from dataclasses import dataclass
from typing import Final

from lakestream.coordination.groups.patterns import classes
from lakestream.coordination.groups.patterns.errors import InvalidPattern

MAX_REPEAT: Final = 1_000
_MAX_DEPTH: Final = 100
_MAX_LENGTH: Final = 4_096
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_ANCHORS: Final = {"A": "start", "z": "end", "b": "edge", "B": "inside"}
_FLAGS: Final = frozenset("imsU")


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these."""

    chars: frozenset[str]


@dataclass(frozen=True, slots=True)
class Anchor:
    """Nothing, at a place: `start`, `end`, the `edge` of a word, or no edge (`inside`)."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`most` is None for any number."""

    part: "Node"
    least: int
    most: int | None


Node = Chars | Anchor | Sequence | Alternatives | Repeat


def parse(text: str) -> Node:
    if len(text) > _MAX_LENGTH:
        raise InvalidPattern(f"it has {len(text)} characters, more than {_MAX_LENGTH}")
    parser = _Parser(text)
    node = parser.choice(0)
    if parser.has_more():
        raise InvalidPattern("unexpected )")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._any_case = False

    def has_more(self) -> bool:
        return self._at < len(self._text)

    def _looks_at(self, start: str) -> bool:
        return self._text.startswith(start, self._at)

    def _take(self, start: str) -> bool:
        found = self._looks_at(start)
        if found:
            self._at += len(start)
        return found

    def _next(self, missing: str) -> str:
        if not self.has_more():
            raise InvalidPattern(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str, missing: str) -> str:
        position = self._text.find(end, self._at)
        if position < 0:
            raise InvalidPattern(missing)
        found = self._text[self._at : position]
        self._at = position + len(end)
        return found

    def choice(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise InvalidPattern(f"groups are nested more than {_MAX_DEPTH} deep")
        any_case = self._any_case
        parts = [self._sequence(depth)]
        while self._take("|"):
            parts.append(self._sequence(depth))
        self._any_case = any_case
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.has_more() and not self._looks_at("|") and not self._looks_at(")"):
            if self._take("\\Q"):
                end = self._text.find("\\E", self._at)
                quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
                self._at += len(quoted) + (0 if end < 0 else 2)
                parts.extend(self._one(char) for char in quoted)
                if not parts:
                    continue
            else:
                atom = self._atom(depth)
                if atom is None:
                    continue
                parts.append(atom)
            parts[-1] = self._repeated(parts[-1])
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._take("?")
        if self._bounds() is not None:
            raise InvalidPattern("a repetition cannot be repeated without a group")
        return Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if not self._looks_at("{"):
            return None
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(low) or not (high == "" or _is_number(high)):
            return None  # No repetition: it stands for itself.
        self._at = end + 1
        least, most = int(low), (None if comma and not high else int(high or low))
        if least > MAX_REPEAT or (most is not None and not least <= most <= MAX_REPEAT):
            raise InvalidPattern(f"a part is repeated at most {MAX_REPEAT} times, and not fewer times than at least")
        return least, most

    def _atom(self, depth: int) -> Node | None:
        """None: it only set flags."""
        char = self._next("nothing is left")
        if char in "*+?":
            raise InvalidPattern(f"there is nothing that {char} could repeat")
        if char == "(":
            return self._group(depth)
        if char == "[":
            return Chars(self._class())
        if char == ".":
            return Chars(classes.ALPHABET)
        if char == "^":
            return Anchor("start")
        if char == "$":
            return Anchor("end")
        if char == "\\":
            return self._escaped()
        return self._one(char)

    def _group(self, depth: int) -> Node | None:
        if self._take("?P<") or self._take("?<"):
            name = self._until(">", "the name of a group has no end")
            if not name or not all(char.isalnum() or char == "_" for char in name):
                # Looking behind begins like a name.
                raise InvalidPattern(f"{name!r} is no name of a group")
        elif self._take("?"):
            return self._flagged(depth)
        return self._closed(depth)

    def _flagged(self, depth: int) -> Node | None:
        any_case, before, on, seen = self._any_case, self._any_case, True, False
        while True:
            char = self._next("a group has no end")
            if char == "-" and on:
                on, seen = False, False
            elif char in _FLAGS:
                any_case, seen = (on if char == "i" else any_case), True
            elif char == ")" and seen:
                self._any_case = any_case
                return None
            elif char == ":" and (seen or on):
                self._any_case = any_case
                node = self._closed(depth)
                self._any_case = before
                return node
            else:
                raise InvalidPattern(f"(?{char} is not served: nothing looks around, and flags are i, m, s, U")

    def _closed(self, depth: int) -> Node:
        node = self.choice(depth + 1)
        if not self._take(")"):
            raise InvalidPattern("a group has no end")
        return node

    def _one(self, char: str) -> Node:
        return Chars(self._cased(frozenset(char)))

    def _cased(self, chars: frozenset[str]) -> frozenset[str]:
        return (classes.any_case(chars) if self._any_case else chars) & classes.ALPHABET

    def _escaped(self) -> Node:
        char = self._next("it ends with a \\")
        if char in _ANCHORS:
            return Anchor(_ANCHORS[char])
        self._at -= 1
        found = self._escape()
        return Chars(found) if isinstance(found, frozenset) else self._one(found)

    def _escape(self) -> str | frozenset[str]:
        """Behind a backslash: one character, or a class of them."""
        char = self._next("it ends with a \\")
        if char in classes.PERL:
            return classes.PERL[char]
        if char in "pP":
            return self._unicode(negated=char == "P")
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            digits = self._until("}", "\\x{ has no end") if self._take("{") else self._next("?") + self._next("?")
            if not digits or len(digits) > 8 or any(each not in string.hexdigits for each in digits):
                raise InvalidPattern(f"\\x{digits} is no character")
            return _character(int(digits, 16))
        if char == "0" or (char in "1234567" and self.has_more() and self._text[self._at] in string.octdigits):
            digits = char
            while len(digits) < 3 and self.has_more() and self._text[self._at] in string.octdigits:
                digits += self._next("")
            return _character(int(digits, 8))
        if char.isascii() and not char.isalnum():
            return char
        raise InvalidPattern(f"\\{char} is not served")

    def _unicode(self, *, negated: bool) -> frozenset[str]:
        name = self._next("\\p has no name")
        if name == "{":
            name = self._until("}", "\\p{ has no end")
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        found = self._cased(classes.unicode_class(name))
        return classes.ALPHABET - found if negated else found

    def _class(self) -> frozenset[str]:
        negated, found, first = self._take("^"), set[str](), True
        while first or not self._take("]"):
            first = False
            if self._looks_at("[:"):
                self._at += 2
                name = self._until(":]", "a class has no end")
                known = classes.POSIX.get(name.removeprefix("^"))
                if known is None:
                    raise InvalidPattern(f"there is no class [:{name}:]")
                found |= classes.ALPHABET - known if name.startswith("^") else self._cased(known)
                continue
            low = self._member()
            if isinstance(low, frozenset):
                found |= low
                continue
            high: str | frozenset[str] = low
            if self._looks_at("-") and not self._looks_at("-]"):
                self._at += 1
                high = self._member()
            if isinstance(high, frozenset) or high < low:
                raise InvalidPattern(f"no range of characters begins with {low!r} and ends there")
            found |= self._cased(classes.between(low, high) | frozenset(low))
        return classes.ALPHABET - found if negated else frozenset(found)

    def _member(self) -> str | frozenset[str]:
        char = self._next("a class has no end")
        return self._escape() if char == "\\" else char


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5


def _character(code: int) -> str:
    if code > 0x10FFFF:
        raise InvalidPattern(f"there is no character {code:x}")
    return chr(code)
