"""Streams of JSON objects, cut into single ones however they arrive."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestream.http.rest.errors import Fault
from lakestream.http.rest.producing.sent import SentRecord
from lakestream.http.rest.producing.splitting import ObjectSplitter

ANY = msgspec.json.Decoder(dict[str, Any])
MOST = 1 << 20

TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text('{}[]"\\\n a', max_size=3), below, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), TREES, max_size=4)


def split(data: bytes, sizes: list[int], most: int = MOST) -> tuple[list[Any], ObjectSplitter[dict[str, Any]]]:
    splitter, found, at = ObjectSplitter(ANY, most), [], 0
    for size in [*sizes, len(data)]:
        found += splitter.feed(data[at : at + size])
        at += size
    return found, splitter


@given(
    st.lists(
        st.tuples(OBJECTS, st.sampled_from(["", " ", "\n", "\r\n", "\n\n\t"]), st.sampled_from([None, 1])), max_size=6
    ),
    st.lists(st.integers(0, 30), max_size=8),
)
def test_objects_come_out_as_they_went_in(
    objects: list[tuple[dict[str, Any], str, int | None]], sizes: list[int]
) -> None:
    text = "".join(json.dumps(each, indent=indent) + space for each, space, indent in objects)
    found, splitter = split(text.encode(), sizes)
    assert found == [each for each, _, _ in objects]
    assert splitter.finish() is None


@given(st.binary(max_size=60), st.lists(st.integers(0, 7), max_size=8))
def test_anything_ends(data: bytes, sizes: list[int]) -> None:
    """Whatever it is: faults, and no exception; the same however it is cut."""
    found, splitter = split(data, sizes)
    again, other = split(data, [])
    assert (found, splitter.is_broken) == (again, other.is_broken)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (b'{"a":1}[]{"b":2}', [dict, Fault]),
        (b'{"a":1} 5', [dict, Fault]),
        (b'{"a":tru}{"b":2}', [Fault, dict]),
        (b'{"a":1,}\n{"b":2}\n', [Fault, dict]),
        (b'{"a"}{"b":"}{"}', [Fault, dict]),
        (b'{"a":"}","b":{}\n}{"c":1}', [dict, dict]),
        (b"\xff", [Fault]),
    ],
)
def test_what_is_wrong_with_one_does_not_hurt_those_that_can_be_told_apart(text: bytes, kinds: list[type]) -> None:
    assert [type(each) for each in split(text, [])[0]] == kinds


def test_an_end_within_an_object_is_told() -> None:
    found, splitter = split(b'{"a":1}{"b":', [])
    fault = splitter.finish()
    assert found == [{"a": 1}]
    assert fault is not None
    assert "ends within a record" in fault.message


@pytest.mark.parametrize("nested", [b"[", b'{"a":', b'["'])
def test_a_bomb_is_refused_and_takes_little(nested: bytes) -> None:
    splitter = ObjectSplitter(msgspec.json.Decoder(SentRecord), 100_000)
    found: list[Any] = []
    began = time.perf_counter()
    for _ in range(200):
        found += splitter.feed(b'{"value":{"data":' + nested * 1_000 if not found else nested * 1_000)
        if splitter.is_broken:
            break
    assert [each.code for each in found] == [413]
    assert time.perf_counter() - began < 5


def test_deep_nesting_is_the_fault_of_its_record() -> None:
    splitter = ObjectSplitter(msgspec.json.Decoder(SentRecord), MOST)
    deep = b'{"value":{"type":"JSON","data":' + b"[" * 50_000 + b"]" * 50_000 + b"}}"
    found = splitter.feed(deep + b'\n{"value":{"type":"JSON","data":1}}\n')
    assert isinstance(found[0], Fault)
    assert isinstance(found[1], SentRecord)


def test_many_objects_on_one_line_take_linear_time() -> None:
    splitter = ObjectSplitter(ANY, MOST)
    began = time.perf_counter()
    assert len(splitter.feed(b'{"a":"b"} ' * 20_000 + b"\n")) == 20_000
    assert time.perf_counter() - began < 5
