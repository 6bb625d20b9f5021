"""The partition of a key, as Kafka's own clients choose it: murmur2."""

from typing import Final

import numpy as np
import numpy.typing as npt

from lakestream.records.columns import Binary

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_SHIFT: Final = 24
_SIDE_BY_SIDE_BYTES: Final = 256
"""Longer keys are hashed one by one: of them there are few in a batch."""

Words = npt.NDArray[np.uint32]


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_of_keys(keys: Binary, partitions: int) -> npt.NDArray[np.int32]:
    """Of each key its partition; -1 where there is none."""
    lengths = np.diff(keys.offsets).astype(np.int64)
    hashes = np.zeros(len(lengths), np.uint32)
    is_long = lengths > _SIDE_BY_SIDE_BYTES
    for row in np.flatnonzero(is_long).tolist():
        hashes[row] = murmur2(keys.data[keys.offsets[row] : keys.offsets[row + 1]].tobytes())
    rows = np.flatnonzero(~is_long)
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    hashes[rows] = _side_by_side(keys.data, keys.offsets[rows].astype(np.int64), lengths[rows])
    chosen = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    chosen[keys.valid == 0] = -1
    return chosen


def murmur2(data: bytes) -> int:
    length = len(data)
    found = _SEED ^ length
    whole = length & ~3
    for (word,) in np.frombuffer(data, "<u4", whole // 4).reshape(-1, 1).tolist():
        mixed = word * _FACTOR & _MASK
        mixed ^= mixed >> _SHIFT
        found = (found * _FACTOR & _MASK) ^ (mixed * _FACTOR & _MASK)
    if length > whole:
        found ^= int.from_bytes(data[whole:], "little")
        found = found * _FACTOR & _MASK
    found ^= found >> 13
    found = found * _FACTOR & _MASK
    return found ^ found >> 15


def _side_by_side(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Words:
    """The longest first, so that those which still have words to come are the first few."""
    factor = np.uint32(_FACTOR)
    found = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths // 4
    for number in range(int(words[0]) if len(words) else 0):
        count = int(np.searchsorted(-words, -number, side="left"))
        mixed = _word(data, starts[:count] + 4 * number) * factor
        mixed ^= mixed >> np.uint32(_SHIFT)
        found[:count] = (found[:count] * factor) ^ (mixed * factor)
    rest = lengths % 4
    for size in (1, 2, 3):
        rows = np.flatnonzero(rest == size)
        tail = np.zeros(len(rows), np.uint32)
        for place in range(size):
            tail |= data[starts[rows] + 4 * words[rows] + place].astype(np.uint32) << np.uint32(8 * place)
        found[rows] = (found[rows] ^ tail) * factor
    found ^= found >> np.uint32(13)
    found *= factor
    return found ^ found >> np.uint32(15)


def _word(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> Words:
    """Four bytes from each start on, the lowest first."""
    parts = [data[starts + place].astype(np.uint32) << np.uint32(8 * place) for place in range(4)]
    word: Words = parts[0] | parts[1] | parts[2] | parts[3]
    return word
