"""The client's end of Fetch v13, for one partition: request and response.

Client libraries hand out records one by one; the Spark source needs whole batches. v13 names topics by id, so another
topic of the same name is never read. Spark's workers import it, so it does without kio.
"""

import struct
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lakestream.errors import CorruptRecords

_API: Final = 1
_VERSION: Final = 13
_CLIENT: Final = b"lakestream-spark"
_READ_COMMITTED: Final = 1
_MAX_VARINT_BITS: Final = 35

_HEADER: Final = struct.Struct(">hhih")
_BODY: Final = struct.Struct(">iiiibii")
_PARTITION: Final = struct.Struct(">iiqiqi")
_ANSWER: Final = struct.Struct(">ihi")
_PARTITION_ANSWER: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_INT: Final = struct.Struct(">i")

OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
UNKNOWN_TOPIC_ID: Final = 100
INCONSISTENT_TOPIC_ID: Final = 103


@dataclass(frozen=True, slots=True)
class Aborted:
    """A transaction whose records from first_offset on, up to its marker, are not to be seen."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Answer:
    error_code: int
    log_start: int
    aborted: tuple[Aborted, ...]
    records: memoryview


def request(topic_id: UUID, partition: int, offset: int, *, correlation_id: int, max_bytes: int, wait_ms: int) -> bytes:
    """With its length in front. Waits for the first byte, reads what is committed."""
    message = b"".join(
        (
            _HEADER.pack(_API, _VERSION, correlation_id, len(_CLIENT)),
            _CLIENT,
            b"\x00",
            _BODY.pack(-1, wait_ms, 1, max_bytes, _READ_COMMITTED, 0, -1),
            b"\x02",
            topic_id.bytes,
            b"\x02",
            _PARTITION.pack(partition, -1, offset, -1, -1, max_bytes),
            b"\x00\x00",  # no tagged fields: partition, topic
            b"\x01\x01\x00",  # nothing forgotten, no rack, no tagged fields
        )
    )
    return _INT.pack(len(message)) + message


def answer(message: memoryview, correlation_id: int) -> Answer:
    """`message` without its length. Raises `CorruptRecords` if it is not the answer to that request."""
    try:
        return _parse(_Cursor(message), correlation_id)
    except (struct.error, IndexError) as error:
        raise CorruptRecords(f"the broker's answer to a fetch cannot be read: {error}") from error


class _Cursor:
    def __init__(self, message: memoryview) -> None:
        self._message = message
        self._at = 0

    def unpack(self, kind: struct.Struct) -> tuple[int, ...]:
        fields = kind.unpack_from(self._message, self._at)
        self._at += kind.size
        return fields

    def varint(self) -> int:
        value = shift = 0
        while shift < _MAX_VARINT_BITS:
            byte = self._message[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise IndexError("a number takes too many bytes")

    def take(self, length: int) -> memoryview:
        piece = self._message[self._at : self._at + length]
        if len(piece) != length:
            raise IndexError("it is cut short")
        self._at += length
        return piece

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _parse(cursor: _Cursor, correlation_id: int) -> Answer:
    (found,) = cursor.unpack(_INT)
    if found != correlation_id:
        raise CorruptRecords(f"the broker answered request {found} where {correlation_id} was asked")
    cursor.skip_tags()
    _, error_code, _ = cursor.unpack(_ANSWER)
    if error_code:
        return Answer(error_code, -1, (), memoryview(b""))
    if cursor.varint() != 2:
        raise IndexError("it does not hold exactly one topic")
    cursor.take(16)
    if cursor.varint() != 2:
        raise IndexError("it does not hold exactly one partition")
    _, error_code, _, _, log_start = cursor.unpack(_PARTITION_ANSWER)
    aborted = []
    for _ in range(cursor.varint() - 1):
        aborted.append(Aborted(*cursor.unpack(_ABORTED)))
        cursor.skip_tags()
    cursor.unpack(_INT)
    length = cursor.varint() - 1
    return Answer(error_code, log_start, tuple(aborted), cursor.take(max(length, 0)))
