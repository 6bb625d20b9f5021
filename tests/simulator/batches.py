"""Record batches in plain Python: small, and independent of the code under test."""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import google_crc32c

_HEADER = struct.Struct(">qiibI")
_REST = struct.Struct(">hiqqqhii")
_TRANSACTIONAL = 0x10
TIMESTAMP_MS = 1_700_000_000_000


class Row(NamedTuple):
    partition: int
    offset: int
    value: bytes


def batch(
    values: Sequence[bytes],
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    offsets: Sequence[int] | None = None,
    transactional: bool = False,
) -> bytes:
    """One batch; `producer` is id, epoch, base sequence. Given offsets may have gaps."""
    base = offsets[0] if offsets else 0
    deltas = [offset - base for offset in offsets] if offsets else range(len(values))
    records = b"".join(map(_record, deltas, values))
    attributes = _TRANSACTIONAL if transactional else 0
    rest = _REST.pack(attributes, deltas[-1], TIMESTAMP_MS, TIMESTAMP_MS, *producer, len(values)) + records
    return _HEADER.pack(base, len(rest) + 9, 0, 2, google_crc32c.value(rest)) + rest


def rows(run: bytes | memoryview, partition: int, base_offset: int | None = None) -> list[Row]:
    """The data records of a run. With a base offset its batches are numbered from there, else by their headers."""
    found: list[Row] = []
    for base, last_delta, records in _batches(bytes(run)):
        start = base if base_offset is None else base_offset
        found += [Row(partition, start + delta, value) for delta, value in records]
        if base_offset is not None:
            base_offset += last_delta + 1
    return found


def end_of(run: bytes | memoryview) -> int:
    """The offset after the last batch, by its header; control batches count."""
    batches = _batches(bytes(run))
    return batches[-1][0] + batches[-1][1] + 1 if batches else 0


@lru_cache(maxsize=1024)
def _batches(data: bytes) -> tuple[tuple[int, int, tuple[tuple[int, bytes], ...]], ...]:
    """Base offset, last offset delta and data records of each batch. The same bytes are read again and again."""
    found = []
    position = 0
    while position < len(data):
        base, length, _, _, crc = _HEADER.unpack_from(data, position)
        end = position + 12 + length
        attributes, last_delta, *_, count = _REST.unpack_from(data, position + _HEADER.size)
        assert google_crc32c.value(data[position + _HEADER.size : end]) == crc
        records = []
        if not attributes & 0x20:
            at = position + _HEADER.size + _REST.size
            for _ in range(count):
                at, delta, value = _read_record(data, at)
                records.append((delta, value))
        found.append((base, last_delta, tuple(records)))
        position = end
    return tuple(found)


def _record(delta: int, value: bytes) -> bytes:
    body = b"\0\0" + _varint(delta) + _varint(-1) + _varint(len(value)) + value + b"\0"
    return _varint(len(body)) + body


def _read_record(data: bytes, at: int) -> tuple[int, int, bytes]:
    length, at = _read_varint(data, at)
    end = at + length
    _, at = _read_varint(data, at + 1)
    delta, at = _read_varint(data, at)
    key_length, at = _read_varint(data, at)
    value_length, at = _read_varint(data, at + max(key_length, 0))
    return end, delta, data[at : at + value_length]


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    at += 1
    if number < 0x80:
        return (number >> 1) ^ -(number & 1), at
    number &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
