"""A plain twin of the record batch format: slow, short, and written without a look at the kernels."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import google_crc32c

from lakestream.records import Columns


@dataclass(frozen=True)
class Row:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_type: int = 0


def varint(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def piece(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def body(row: Row) -> bytes:
    headers = b"".join(piece(key) + piece(value) for key, value in row.headers)
    return piece(row.key) + piece(row.value) + varint(len(row.headers)) + headers


def batch(rows: Sequence[Row], *, attributes: int = 0, base_offset: int | None = None) -> bytes:
    """The plain twin: one uncompressed batch."""
    first = rows[0]
    records = bytearray()
    for row in rows:
        record = b"\x00" + varint(row.timestamp_ms - first.timestamp_ms) + varint(row.offset - first.offset) + body(row)
        records += varint(len(record)) + record
    return frame(bytes(records), rows, attributes=attributes, base_offset=base_offset)


def frame(records: bytes, rows: Sequence[Row], *, attributes: int = 0, base_offset: int | None = None) -> bytes:
    first, last = rows[0], rows[-1]
    newest = max(row.timestamp_ms for row in rows)
    tail = struct.pack(
        ">hiqqqhii",
        attributes | (8 if first.timestamp_type else 0),
        last.offset - first.offset,
        first.timestamp_ms,
        newest,
        -1,
        -1,
        -1,
        len(rows),
    )
    checksum = google_crc32c.value(tail + records)
    start = first.offset if base_offset is None else base_offset
    return struct.pack(">qiibI", start, 49 + len(records), 0, 2, checksum) + tail + records


def rows_of(columns: Columns) -> Iterator[Row]:
    def cell(column, row: int) -> bytes | None:
        return column.data[column.offsets[row] : column.offsets[row + 1]].tobytes() if column.valid[row] else None

    for row in range(len(columns)):
        headers = tuple(
            (cell(columns.header_key, index), cell(columns.header_value, index))
            for index in range(columns.header_offsets[row], columns.header_offsets[row + 1])
        )
        raw = cell(columns.headers_raw, row)
        if raw is not None:
            assert not headers
            headers = parse_headers(raw)
        yield Row(
            int(columns.offset[row]),
            int(columns.timestamp_ms[row]),
            cell(columns.key, row),
            cell(columns.value, row),
            headers,
            int(columns.timestamp_type[row]),
        )


def parse_headers(raw: bytes) -> tuple[tuple[bytes, bytes | None], ...]:
    def number(position: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = raw[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position

    count, position = number(0)
    headers = []
    for _ in range(count):
        length, position = number(position)
        key = raw[position : position + length]
        length, position = number(position + len(key))
        value = None if length < 0 else raw[position : position + length]
        position += max(length, 0)
        headers.append((key, value))
    assert position == len(raw)
    return tuple(headers)


def signed_crc(data: bytes) -> int:
    return struct.unpack(">i", struct.pack(">I", google_crc32c.value(data)))[0]
