"""A bucket read by the rules of docs/FORMATS.md, with `struct`, MessagePack and CRC32C: nothing here may import what
wrote it, but for the broker that does."""

import re
import struct
from pathlib import Path
from typing import Any
from uuid import UUID

import google_crc32c
import msgspec
from support.clients.batches import batch
from support.worlds.brokers import BrokerWorld

from lakestream.model import StreamPartition
from lakestream.objects.local.store import LocalObjects

PAGE = Path(__file__).parents[3] / "docs" / "FORMATS.md"


def crc32c(data: bytes) -> int:
    return int(google_crc32c.value(data))


def read_object(data: bytes) -> list[Any]:
    """The footer of a WAL object. Every byte is checked."""
    size = len(data)
    trailer = data[size - 28 :]
    length, footer_crc, said_size, version, zero, trailer_crc, magic = struct.unpack("<IIQHHI4s", trailer)
    assert magic == b"WSKL"
    assert (version, zero, said_size) == (3, 0, size)
    assert crc32c(trailer[:20]) == trailer_crc
    footer = data[size - 28 - length : size - 28]
    assert crc32c(footer) == footer_crc
    parsed: list[Any] = msgspec.msgpack.decode(footer)
    _session, _flush, _generation, spans, _receipts, markers, decisions = parsed
    assert (markers, decisions) == ([], [])
    at = 0
    for _partition, position, span_length, span_crc, _count, _time in spans:
        assert position == at
        assert crc32c(data[position : position + span_length]) == span_crc
        at += span_length
    assert at == size - 28 - length
    return parsed


def varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def field(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = varint(data, at)
    return (None, at) if length == -1 else (data[at : at + length], at + length)


def read_batches(data: bytes, offset: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of each record; the batches here are not compressed."""
    found = []
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        _epoch, magic, checksum, attributes, last_delta = struct.unpack_from(">iBIhi", data, at + 12)
        end = at + 12 + length
        assert (magic, attributes & 7) == (2, 0)
        assert crc32c(data[at + 21 : end]) == checksum
        (count,) = struct.unpack_from(">i", data, at + 57)
        assert count == last_delta + 1
        place = at + 61
        for _ in range(count):
            size, place = varint(data, place)
            after = place + size
            place += 1
            _time, place = varint(data, place)
            delta, place = varint(data, place)
            key, place = field(data, place)
            value, place = field(data, place)
            found.append((offset + delta, key, value))
            place = after
        offset += count
        at = end
    return found


def read_log(bucket: Path) -> dict[tuple[UUID, int], list[tuple[int, bytes | None, bytes | None]]]:
    """What receipts say is placed, by partition."""
    objects = {str(path.relative_to(bucket)): path.read_bytes() for path in sorted((bucket / "wal").rglob("*.wal"))}
    log: dict[tuple[UUID, int], list[tuple[int, bytes | None, bytes | None]]] = {}
    for data in objects.values():
        for key, sections in read_object(data)[4]:
            for (topic, index), placed, _refused in sections:
                for base, count, position, length in placed:
                    records = read_batches(objects[key][position : position + length], base)
                    assert len(records) == count
                    log.setdefault((UUID(bytes=topic), index), []).extend(records)
    return {partition: sorted(records) for partition, records in log.items()}


async def test_a_stranger_reads_the_log_from_wal_objects(tmp_path: Path) -> None:
    cluster = BrokerWorld(objects=LocalObjects(str(tmp_path)))
    wanted: dict[tuple[UUID, int], list[bytes]] = {}
    async with cluster.brokers(2) as brokers:
        topic = await brokers[0].create_topic("orders", 2, {})
        for number in range(12):
            partition, values = number % 2, [b"%d-%d" % (number, each) for each in range(number % 4 + 1)]
            done = await brokers[number % 3 % 2].append(StreamPartition(topic.topic_id, partition), batch(*values))
            known = wanted.setdefault((topic.topic_id, partition), [])
            assert done.base_offset == len(known)
            known += values
    log = read_log(tmp_path)
    found = {partition: [(offset, value) for offset, _key, value in records] for partition, records in log.items()}
    assert found == {partition: list(enumerate(values)) for partition, values in wanted.items()}


def test_the_page_names_what_this_test_reads() -> None:
    page = PAGE.read_text()
    assert "`WSKL`" in page
    assert re.search(r"format version, u16: 3", page)
    assert "[session, flush, generation, spans, receipts, markers, decisions]" in page
