"""Ids of schemas before values: where there is one, and which of them are news."""

import numpy as np
import pytest
from support.schemas.avro import framed

from lakestream.records import Binary
from lakestream.records.framing import framed_ids, unknown_ids


def values(*found: bytes | None) -> Binary:
    lengths = [0, *(len(each or b"") for each in found)]
    data = np.frombuffer(b"".join(each or b"" for each in found), np.uint8)
    return Binary(np.cumsum(lengths).astype(np.int32), data, np.array([each is not None for each in found], np.uint8))


def test_ids_are_found_before_values() -> None:
    found = values(framed(7, b"x"), None, b"", b"\0\0\0\7", framed(2**31 - 1, b""), framed(2**31, b""), b"\1\0\0\0\7x")
    assert framed_ids(found).tolist() == [7, -1, -1, -1, 2**31 - 1, 2**31, -1]
    assert framed_ids(values()).tolist() == []


@pytest.mark.parametrize(("most", "expected"), [(9, {1, 3, 4}), (1, {3})])
def test_of_unknown_ids_the_most_frequent_are_told(most: int, expected: set[int]) -> None:
    found = values(*(framed(each, b"") for each in (1, 2, 3, 3, 3, 4, 4, 2, 2, 2, 2, 2**31)), b"none")
    assert unknown_ids(found, [2], most) == expected
