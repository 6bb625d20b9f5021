"""Patterns of topics' names: RE2's words, the whole name, and no expression takes for ever."""

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from lakestream.coordination.groups.patterns import InvalidPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders-.*", "orders-1", True),
        ("orders-.*", "x-orders-1", False),
        ("orders", "orders-1", False),
        ("^orders$", "orders", True),
        ("(a|b)+c{2,3}", "ababccc", True),
        ("(a|b)+c{2,3}", "ababc", False),
        ("(?i)ORDERS.x", "orders.X", True),
        ("x(?i:y)z", "xYz", True),
        ("x(?i:y)z", "XYz", False),
        ("[[:alpha:]]+\\d", "abc1", True),
        ("\\Qa.b\\E", "a.b", True),
        ("\\Qa.b\\E", "axb", False),
        ("[^a-c]x", "dx", True),
        ("[^a-c]x", "bx", False),
        ("[a\\-z]+", "a-z", True),
        ("\\p{Lu}+", "AB", True),
        ("\\pN\\PN", "1x", True),
        ("a\\bb", "ab", False),
        ("a\\b-b", "a-b", True),
        ("\\x61\\x{62}\\143", "abc", True),
        ("a{,3}", "aaa", False),
        ("(?P<name>x)y", "xy", True),
        (".*", "", True),
    ],
)
def test_names(pattern: str, name: str, matches: bool) -> None:
    assert Pattern(pattern).matches(name) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a**",
        "*a",
        "a++",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "\\1",
        "[a",
        "[z-a]",
        "a{1001}",
        "a{2,1}",
        "\\",
        "(?z)",
        "(?P<",
        "[[:no:]]",
        "\\p{No!}",
        "((((a{9}){99}){99}){99})",
        "(" * 101 + ")" * 101,
        "a" * 5_000,
        "\\k",
    ],
)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+b", "(a|a?)+b", "(.*)(.*)(.*)(.*)(.*)b", "(a?){200}a{200}b"])
def test_nothing_goes_back(pattern: str) -> None:
    begun = time.process_time()
    assert not Pattern(pattern).matches("a" * 249)
    assert time.process_time() - begun < 2


def test_what_takes_too_much_is_refused() -> None:
    pattern, draw = Pattern("(.*a.{90}|.*b.{91}|.*c.{92})"), random.Random(1)
    names = ["".join(draw.choices("abc", k=240)) for _ in range(500)]
    with pytest.raises(InvalidPattern, match="too much"):
        [pattern.matches(name) for name in names]


PARTS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\w", "-", "\\b", "^", "$"]),
    lambda part: st.one_of(
        st.tuples(part, part).map("".join),
        st.tuples(part, part).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(part, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
)


@given(text=PARTS, name=st.text("ab-._c", max_size=7))
@examples(300)
def test_it_says_what_python_says(text: str, name: str) -> None:
    wanted = re.fullmatch(text.replace("$", "\\Z"), name, re.ASCII) is not None
    assert Pattern(text).matches(name) is wanted
