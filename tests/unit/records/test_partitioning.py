"""The partition of a key is the one that Kafka's own clients choose."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakestream.records import Binary
from lakestream.records.partitioning import murmur2, partition_of_key, partitions_of_keys


def binary(keys: list[bytes | None]) -> Binary:
    offsets = np.cumsum([0, *(len(key or b"") for key in keys)]).astype(np.int32)
    data = np.frombuffer(b"".join(key or b"" for key in keys), np.uint8)
    return Binary(offsets, data, np.array([key is not None for key in keys], np.uint8))


def test_hashes_are_those_of_apache_kafka() -> None:
    """From its UtilsTest."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in known} == {key: value & 0xFFFFFFFF for key, value in known.items()}


@given(st.lists(st.none() | st.binary(max_size=400)), st.integers(1, 2000))
def test_many_keys_at_once_go_where_each_goes_alone(keys: list[bytes | None], partitions: int) -> None:
    alone = [-1 if key is None else partition_of_key(key, partitions) for key in keys]
    assert partitions_of_keys(binary(keys), partitions).tolist() == alone


def test_no_key() -> None:
    assert partitions_of_keys(binary([]), 3).tolist() == []
