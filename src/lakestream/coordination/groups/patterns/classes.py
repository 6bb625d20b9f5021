"""Sets of characters. Only those that a topic's name can have count, so each is small, even one of all Unicode."""

import string
import unicodedata
from typing import Final

from lakestream.coordination.groups.patterns.errors import InvalidPattern

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
DIGITS: Final = frozenset(string.digits)
WORDS: Final = frozenset(string.ascii_letters + string.digits + "_")
NOBODY: Final[frozenset[str]] = frozenset()

PERL: Final = {
    "d": DIGITS,
    "D": ALPHABET - DIGITS,
    "w": WORDS,
    "W": ALPHABET - WORDS,
    "s": NOBODY,
    "S": ALPHABET,
}
POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": NOBODY,
    "cntrl": NOBODY,
    "digit": DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": NOBODY,
    "upper": frozenset(string.ascii_uppercase),
    "word": WORDS,
    "xdigit": frozenset(string.hexdigits),
}
_CATEGORIES: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_LATIN: Final = frozenset(string.ascii_letters)
_SCRIPTS: Final = {"Any": ALPHABET, "Latin": _LATIN, "Common": ALPHABET - _LATIN}
_OTHER_SCRIPTS: Final = frozenset(
    ("Arabic", "Cyrillic", "Greek", "Han", "Hangul", "Hebrew", "Hiragana", "Katakana", "Thai")
)


def unicode_class(name: str) -> frozenset[str]:
    """By a general category or a script."""
    if name in _SCRIPTS:
        return _SCRIPTS[name]
    if name in _OTHER_SCRIPTS:
        return NOBODY
    if name[:1] not in _CATEGORIES or len(name) > 2 or not set(name[1:]) <= set(_CATEGORIES[name[0]]):
        raise InvalidPattern(f"there is no character class {name!r}")
    return frozenset(char for char in ALPHABET if unicodedata.category(char).startswith(name))


def between(low: str, high: str) -> frozenset[str]:
    return frozenset(char for char in ALPHABET if low <= char <= high)


def any_case(chars: frozenset[str]) -> frozenset[str]:
    return chars | {char.swapcase() for char in chars if char.isascii()}
