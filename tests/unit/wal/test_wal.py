"""The WAL object format: what is built is read back, and damage never passes."""

import struct
from collections.abc import Sequence
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from lakestream import wal
from lakestream.errors import CorruptObject, ObjectMissing
from lakestream.model import StreamPartition
from lakestream.objects import Buffer, MemoryObjects
from lakestream.records import crc32c
from lakestream.runtime import system
from lakestream.wal import NOT_TOLD, Footer, Placed, Receipt, RefusedRange, Section, SectionReceipt, Span, format

KEY = "wal/0000000007/session-0000000003.wal"
TOPIC = UUID("11111111-2222-4333-8444-555555555555")

partitions = st.builds(StreamPartition, st.uuids(), st.integers(0, 2**31 - 1))
sections = st.lists(
    st.builds(
        Section,
        partitions,
        st.lists(st.binary(max_size=40), max_size=4),
        st.integers(0, 2**31 - 1),
        st.integers(-1, 253402300799999),
    ),
    max_size=5,
    unique_by=lambda section: section.partition,
)
receipts = st.lists(
    st.builds(
        Receipt,
        st.text(max_size=20),
        st.lists(
            st.builds(
                SectionReceipt,
                partitions,
                st.lists(st.builds(Placed, *[st.integers(0, 2**63 - 1)] * 4), max_size=2).map(tuple),
                st.lists(
                    st.builds(RefusedRange, *[st.integers(0, 2**63 - 1)] * 2, st.sampled_from(("duplicate", "fenced"))),
                    max_size=2,
                ).map(tuple),
            ),
            max_size=4,
        ).map(tuple),
    ),
    max_size=3,
)


def build(sections: Sequence[Section] = (), receipts: Sequence[Receipt] = (), flush: int = 3) -> wal.BuiltObject:
    return wal.build(sections, receipts, session="session", flush=flush, generation=7)


async def read(data: bytes) -> Footer:
    store = MemoryObjects(system().clock)
    await store.put(KEY, [data])
    return await wal.read_footer(store, KEY)


def sample() -> tuple[bytes, wal.BuiltObject]:
    built = build(
        [
            Section(StreamPartition(TOPIC, 1), [b"one", bytearray(b"two")], 2, 1234),
            Section(StreamPartition(TOPIC, 0), [memoryview(b"zero")], 1, -1),
        ],
        [
            Receipt(
                "wal/0000000006/session-0000000002.wal",
                (SectionReceipt(StreamPartition(TOPIC, 1), (Placed(41, 1, 0, 9),)),),
            )
        ],
    )
    return b"".join(built.parts), built


@examples(100, derandomize=True)
@given(sections=sections, receipts=receipts)
async def test_what_is_built_is_read_back(sections: list[Section], receipts: list[Receipt]) -> None:
    built = build(sections, receipts)
    data = b"".join(built.parts)
    assert len(data) == built.size_bytes
    footer = await read(data)
    assert footer == Footer("session", 3, 7, tuple(built.spans), tuple(receipts))
    assert [span.partition for span in footer.spans] == sorted(section.partition for section in sections)
    by_partition = {section.partition: section for section in sections}
    for span in footer.spans:
        section = by_partition[span.partition]
        stored = data[span.position : span.position + span.length]
        assert stored == b"".join(section.parts)
        assert (span.record_count, span.max_timestamp_ms) == (section.record_count, section.max_timestamp_ms)
        assert span.checksum == crc32c(stored)
        wal.verify_span(span, stored)


def test_record_bytes_are_not_copied() -> None:
    large, small = bytearray(200_000), memoryview(bytearray(b"small"))
    built = build([Section(StreamPartition(TOPIC, 0), [large, small], 1, 0)])
    assert any(part is large for part in built.parts)
    assert any(part is small for part in built.parts)
    assert built.spans[0].checksum == crc32c(bytes(large) + b"small")


def test_layout_is_the_documented_one() -> None:
    """A change here needs a new format version: objects of this one are in people's buckets."""
    data, built = sample()
    assert data[:10] == b"zeroonetwo"
    footer_length = int.from_bytes(data[-28:-24], "little")
    footer = data[-28 - footer_length : -28]
    assert data[10 : len(data) - 28] == footer
    topic = TOPIC.bytes
    assert msgspec.msgpack.decode(footer) == [
        "session",
        3,
        7,
        [[[topic, 0], 0, 4, crc32c(b"zero"), 1, -1], [[topic, 1], 4, 6, crc32c(b"onetwo"), 2, 1234]],
        [["wal/0000000006/session-0000000002.wal", [[[topic, 1], [[41, 1, 0, 9]], []]]]],
        [],
        [],
    ]
    assert data[-24:-20] == crc32c(footer).to_bytes(4, "little")
    assert data[-20:-12] == len(data).to_bytes(8, "little")
    assert data[-12:-8] == b"\x03\x00\x00\x00"
    assert data[-8:-4] == crc32c(data[-28:-8]).to_bytes(4, "little")
    assert data[-4:] == b"WSKL"
    assert len(built.parts) == 5


async def test_an_object_may_hold_receipts_only() -> None:
    receipt = Receipt(
        "wal/0000000001/session-0000000001.wal",
        (SectionReceipt(StreamPartition(TOPIC, 5), (Placed(10**15, 1, 0, 9),)),),
    )
    footer = await read(b"".join(build(receipts=[receipt]).parts))
    assert (footer.spans, footer.receipts) == ((), (receipt,))
    assert (await read(b"".join(build().parts))).receipts == ()


async def test_the_format_before_is_read_and_a_later_one_is_refused() -> None:
    """Format 2 told of a section only where its first extent begins."""
    data, built = sample()
    length = int.from_bytes(data[-28:-24], "little")
    body, topic = data[: -28 - length], TOPIC.bytes
    spans = [[[topic, span.partition.index], *msgspec.to_builtins(span)[1:]] for span in built.spans]
    old = msgspec.msgpack.encode(["session", 3, 7, spans, [["wal/x", [[[topic, 1], 41]]]]])

    def sealed(footer: bytes, version: int) -> bytes:
        fields = struct.pack("<IIQHH", len(footer), crc32c(footer), len(body) + len(footer) + 28, version, 0)
        return body + footer + fields + struct.pack("<I4s", crc32c(fields), b"WSKL")

    untold = Placed(41, NOT_TOLD, NOT_TOLD, NOT_TOLD)
    receipt = Receipt("wal/x", (SectionReceipt(StreamPartition(TOPIC, 1), (untold,)),))
    assert await read(sealed(old, 2)) == Footer("session", 3, 7, tuple(built.spans), (receipt,))
    with pytest.raises(CorruptObject, match="WAL format 4 is not one this version reads"):
        await read(sealed(old, 4))
    for more in ([[1]], []), ([], [[1]]):
        newer = msgspec.msgpack.encode(["session", 3, 7, spans, [], *more])
        with pytest.raises(CorruptObject, match="ends of transactions"):
            await read(sealed(newer, 3))


def test_a_partition_has_one_section() -> None:
    section = Section(StreamPartition(TOPIC, 0), [b"x"], 1, 0)
    with pytest.raises(ValueError, match="two sections"):
        build([section, section])


async def test_every_flipped_bit_outside_the_sections_is_detected() -> None:
    data, _ = sample()
    for position in range(10, len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptObject, match=KEY):
                await read(bytes(damaged))


@examples(100, derandomize=True)
@given(data=st.data(), sections=sections, receipts=receipts)
async def test_damage_anywhere_is_detected(
    data: st.DataObject, sections: list[Section], receipts: list[Receipt]
) -> None:
    built = build(sections, receipts)
    whole = bytearray(b"".join(built.parts))
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] ^= data.draw(st.integers(1, 255))
    inside = [span for span in built.spans if span.position <= position < span.position + span.length]
    if not inside:
        with pytest.raises(CorruptObject, match=KEY):
            await read(bytes(whole))
    for span in inside:
        footer = await read(bytes(whole))
        assert span in footer.spans
        with pytest.raises(CorruptObject, match=r"the object: .* damaged"):
            wal.verify_span(span, whole[span.position : span.position + span.length], name="the object")


async def test_every_truncation_is_detected() -> None:
    data, _ = sample()
    for end in range(len(data)):
        with pytest.raises(CorruptObject, match=KEY):
            await read(data[:end])
    for start in range(1, len(data)):
        with pytest.raises(CorruptObject, match=KEY):
            await read(data[start:])


def test_a_span_of_another_length_is_detected() -> None:
    span = Span(StreamPartition(TOPIC, 0), 8, 4, crc32c(b"zero"), 1, 0)
    wal.verify_span(span, b"zero")
    for wrong in (b"zer", b"zero0", b"", b"Zero"):
        with pytest.raises(CorruptObject):
            wal.verify_span(span, wrong)


async def test_bytes_before_the_object_are_detected() -> None:
    data, _ = sample()
    for extra in (1, 8, 65536, 100_000):
        with pytest.raises(CorruptObject, match=KEY):
            await read(bytes(extra) + data)


@examples(50, derandomize=True)
@given(st.binary(max_size=200))
async def test_other_bytes_are_no_wal_object(data: bytes) -> None:
    with pytest.raises(CorruptObject, match=KEY):
        await read(data)


def sealed(data: bytes, fields: bytes) -> bytes:
    return data[:-28] + fields + crc32c(fields).to_bytes(4, "little") + b"WSKL"


async def test_a_newer_format_is_told_from_damage() -> None:
    data, _ = sample()
    newer = sealed(data, data[-28:-12] + b"\x04\x00\x00\x00")
    with pytest.raises(CorruptObject, match="WAL format 4 is not one this version reads"):
        await read(newer)


async def test_lying_lengths_are_detected() -> None:
    data, _ = sample()
    for length in (0, 1, 10**6, 2**32 - 1):
        with pytest.raises(CorruptObject):
            await read(sealed(data, length.to_bytes(4, "little") + data[-24:-8]))
    for size in (0, 1, len(data) - 1, len(data) + 1, 2**63):
        with pytest.raises(CorruptObject):
            await read(sealed(data, data[-28:-20] + size.to_bytes(8, "little") + data[-12:-8]))


@pytest.mark.parametrize(
    "spans",
    [
        [Span(StreamPartition(TOPIC, 0), 1, 9, 0, 1, 0)],
        [Span(StreamPartition(TOPIC, 0), 0, 11, 0, 1, 0)],
        [Span(StreamPartition(TOPIC, 0), 0, 9, 0, 1, 0)],
        [Span(StreamPartition(TOPIC, 0), 0, 20, 0, 1, 0), Span(StreamPartition(TOPIC, 1), 20, -10, 0, 1, 0)],
        [],
        ["no span"],
    ],
)
async def test_spans_must_fill_the_object(spans: list[object]) -> None:
    """A footer with a good checksum that does not fit the object around it."""
    data, _ = sample()
    sections = data[:10]
    footer = msgspec.msgpack.Encoder(uuid_format="bytes").encode(["session", 3, 7, spans, []])
    size = len(sections) + len(footer) + 28
    fields = len(footer).to_bytes(4, "little") + crc32c(footer).to_bytes(4, "little")
    fields += size.to_bytes(8, "little") + b"\x03\x00\x00\x00"
    with pytest.raises(CorruptObject, match=KEY):
        await read(sealed(data[:10] + footer + bytes(28), fields))


class CountingObjects(MemoryObjects):
    def __init__(self) -> None:
        super().__init__(system().clock)
        self.reads: list[str] = []

    async def get_tail(self, key: str, length: int) -> bytes:
        self.reads.append("tail")
        return await super().get_tail(key, length)

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> bytes:
        self.reads.append("range")
        return await super().get_range(key, start, length)


@pytest.mark.parametrize(
    ("partitions", "section_bytes", "reads"),
    [(3, 10, ["tail"]), (3, 100_000, ["tail"]), (4000, 10, ["tail", "range"])],
)
async def test_a_footer_takes_one_read_unless_it_is_long(partitions: int, section_bytes: int, reads: list[str]) -> None:
    store = CountingObjects()
    parts: list[Buffer] = [bytes(section_bytes)]
    built = build([Section(StreamPartition(TOPIC, n), parts, 1, 0) for n in range(partitions)])
    await store.put(KEY, built.parts)
    footer = await wal.read_footer(store, KEY)
    assert list(footer.spans) == built.spans
    assert store.reads == reads


@pytest.mark.parametrize("offset", [-1, 0, 1])
async def test_objects_about_as_long_as_the_first_read(offset: int) -> None:
    empty = build([Section(StreamPartition(TOPIC, 0), [bytes(65_000)], 1, 0)]).size_bytes - 65_000
    section = Section(StreamPartition(TOPIC, 0), [bytes(65536 + offset - empty)], 1, 0)
    built = build([section])
    assert built.size_bytes == 65536 + offset
    assert list((await read(b"".join(built.parts))).spans) == built.spans


async def test_a_missing_object_is_missing() -> None:
    with pytest.raises(ObjectMissing):
        await wal.read_footer(MemoryObjects(system().clock), KEY)


def test_small_and_large_sections_have_the_same_checksum() -> None:
    limit = format.SMALL_SECTION_BYTES
    for size in (limit - 1, limit, limit + 1):
        parts = [bytes(size // 2), b"x" * (size - size // 2)]
        (span,) = build([Section(StreamPartition(TOPIC, 0), parts, 1, 0)]).spans
        assert span.checksum == crc32c(b"".join(parts))
