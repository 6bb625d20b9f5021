"""Which characters a producer escapes, as far as its texts tell."""

import re
from collections.abc import Iterable
from typing import Final

from lakestream.schemas.codecs.json.template import LINE_ENDS, SHORT, Escapes
from lakestream.schemas.codecs.json.writing import MUST_ESCAPE

ESCAPES: Final = (
    Escapes(code="\x7f", is_ascii=True),  # Python
    Escapes(),  # JavaScript, Rust, orjson, msgspec, Python without ensure_ascii
    Escapes(is_upper=True),  # Jackson
    Escapes(code="<>&" + LINE_ENDS),  # Go
    Escapes(code="<>&='" + LINE_ENDS),  # Gson
    Escapes(short='"\\\n\r\t', code="<>&" + LINE_ENDS),  # Go before 1.22
    Escapes(code=LINE_ENDS),  # Gson without escapes for HTML, Go likewise
    Escapes(short='"\\\n\r\t', code=LINE_ENDS),
    Escapes(is_ascii=True),
    Escapes(short='"\\/\b\f\n\r\t', is_ascii=True),  # PHP
    Escapes(short='"\\/\b\f\n\r\t'),
    Escapes(is_ascii=True, is_upper=True),
    Escapes(short="\\\b\f\n\r\t", code="<>&'+\"`\x7f", is_ascii=True, is_upper=True),  # .NET
)
"""Of producers. The first ones are assumed where a text could be any's."""

_TOKEN: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)|([^\\])", re.DOTALL)
_CHARACTERS: Final = {letter: character for character, letter in SHORT.items()}
_OTHERS: Final = "\x80"
"""Stands for all characters that are not ASCII, but the line ends of Unicode."""
RAW, SHORTLY, CODED = "raw", "short", "code"


class EscapesSeen:
    """In the texts of one tile."""

    def __init__(self) -> None:
        self._forms: dict[str, str] = {}
        self._is_upper: bool | None = None
        self._last: Escapes | None = None

    def escapes(self, strings: Iterable[str]) -> Escapes:
        """Of a text with these strings, which have their quotes."""
        own: dict[str, str] = {}
        is_upper: bool | None = None
        for string in strings:
            for token in _TOKEN.finditer(string, 1, len(string) - 1):
                code, short, raw = token.groups()
                if code is not None:
                    own[_class_of(chr(int(code, 16)))] = CODED
                    digits = code.strip("0123456789")
                    is_upper = digits.isupper() if digits else is_upper
                elif short is not None:
                    own[_CHARACTERS[short]] = SHORTLY
                else:
                    own[_class_of(raw)] = RAW
        self._forms |= own
        self._is_upper = self._is_upper if is_upper is None else is_upper
        choices = ESCAPES if self._last is None else (self._last, *ESCAPES)
        fitting = [each for each in choices if _fits(each, own, is_upper)]
        wider = [each for each in fitting if _fits(each, self._forms, self._is_upper)]
        self._last = (wider or fitting or [self._made(own, is_upper)])[0]
        return self._last

    def _made(self, own: dict[str, str], is_upper: bool | None) -> Escapes:
        """For what no known producer writes: what was seen, and the most common form of the rest."""
        forms = {**self._forms, **own}
        base = self._last or ESCAPES[1]
        kept = {each for each in base.short if forms.get(each, SHORTLY) == SHORTLY}
        short = kept | {each for each, form in forms.items() if form == SHORTLY}
        code = {each for each in base.code if forms.get(each, CODED) == CODED}
        code |= {each for each, form in forms.items() if form == CODED and each < _OTHERS and each >= " "}
        code |= {each for each in '"\\' if each not in short}
        if forms.get(LINE_ENDS[0]) == CODED:
            code |= set(LINE_ENDS)
        elif forms.get(LINE_ENDS[0]) == RAW:
            code -= set(LINE_ENDS)
        is_ascii = forms.get(_OTHERS) == CODED if _OTHERS in forms else base.is_ascii
        return Escapes(
            "".join(sorted(short)),
            "".join(sorted(code - short)),
            is_ascii,
            base.is_upper if is_upper is None else is_upper,
        )


def _class_of(character: str) -> str:
    return character if character < _OTHERS else LINE_ENDS[0] if character in LINE_ENDS else _OTHERS


def _fits(escapes: Escapes, forms: dict[str, str], is_upper: bool | None) -> bool:
    if is_upper is not None and is_upper != escapes.is_upper:
        return False
    return all(_form_of(escapes, character) == form for character, form in forms.items())


def _form_of(escapes: Escapes, character: str) -> str:
    if character in escapes.short:
        return SHORTLY
    if character in escapes.code or (escapes.is_ascii and character >= _OTHERS):
        return CODED
    return CODED if character in MUST_ESCAPE else RAW
