"""The WAL object: the records of many partitions, one after the other, and a footer that explains them.

Layout (integers little endian):

    sections  …  the bytes of each partition, in partition order, without gaps
    footer    …  MessagePack array: session, flush, generation, spans, receipts, markers, decisions
    trailer  28  footer length u32, footer CRC32C u32, object size u64, format version u16, zero u16,
                 CRC32C u32 of these 20 bytes, magic "WSKL"

A span says where its partition's section lies and carries the section's CRC32C. A
receipt tells what became of an earlier object: the log can be
rebuilt from the bucket alone (`lakestream.wal.footer`). An object may hold receipts only.

There is no header: every byte is under the checksum of a section, of the footer or of the
trailer, and whoever reads it checks that.

The trailer keeps its layout in every format version, so that a reader can always tell
a newer object from a damaged one; a truncated object lacks the magic at its end.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lakestream.errors import CorruptObject
from lakestream.model import StreamPartition
from lakestream.objects import Buffer
from lakestream.records import crc32c
from lakestream.wal.footer import (
    FORMAT_VERSION,
    READ_VERSIONS,
    Footer,
    Receipt,
    Span,
    decode_footer,
    encode_footer,
)

_TRAILER_MAGIC: Final = b"WSKL"
_FIELDS: Final = struct.Struct("<IIQHH")
_SEAL: Final = struct.Struct("<I4s")

SMALL_SECTION_BYTES: Final = 64 * 1024
"""Up to here one checksum call over a copy is quicker than one for each part."""
TRAILER_BYTES: Final = _FIELDS.size + _SEAL.size


@dataclass(frozen=True, slots=True)
class Section:
    """What one flush holds for one partition; the parts are concatenated in the object. `checksum` is CRC32C of them
    all, for callers that took it while the bytes were at hand."""

    partition: StreamPartition
    parts: Sequence[Buffer]
    record_count: int
    max_timestamp_ms: int
    checksum: int | None = None


@dataclass(frozen=True, slots=True)
class BuiltObject:
    """`parts` refers to the buffers of the sections: they must not change until the object is stored."""

    parts: list[Buffer]
    spans: list[Span]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Trailer:
    footer_length: int
    footer_checksum: int
    object_size_bytes: int
    version: int


def build(
    sections: Iterable[Section], receipts: Iterable[Receipt], *, session: str, flush: int, generation: int
) -> BuiltObject:
    """Lays an object out without copying record bytes. Each partition may occur once."""
    ordered = sorted(sections, key=lambda section: section.partition)
    parts: list[Buffer] = []
    spans: list[Span] = []
    position = 0
    for section in ordered:
        if spans and spans[-1].partition == section.partition:
            raise ValueError(f"partition {section.partition} has two sections in one object")
        start = position
        position += sum(map(len, section.parts))
        parts.extend(section.parts)
        checksum = _checksum(section.parts, position - start) if section.checksum is None else section.checksum
        spans.append(
            Span(section.partition, start, position - start, checksum, section.record_count, section.max_timestamp_ms)
        )
    footer = encode_footer(Footer(session, flush, generation, tuple(spans), tuple(receipts)))
    size_bytes = position + len(footer) + TRAILER_BYTES
    fields = _FIELDS.pack(len(footer), crc32c(footer), size_bytes, FORMAT_VERSION, 0)
    parts += (footer, fields + _SEAL.pack(crc32c(fields), _TRAILER_MAGIC))
    return BuiltObject(parts, spans, size_bytes)


def _checksum(parts: Sequence[Buffer], size_bytes: int) -> int:
    if size_bytes <= SMALL_SECTION_BYTES:
        return crc32c(b"".join(parts))
    checksum = 0
    for part in parts:
        checksum = crc32c(part, checksum)
    return checksum


def verify_span(span: Span, data: Buffer, *, name: str = "WAL object") -> None:
    """Raises `CorruptObject` unless `data` is what `build` was given for this span."""
    if len(data) != span.length or crc32c(data) != span.checksum:
        raise CorruptObject(
            f"{name}: the {span.length} bytes at {span.position} of partition {span.partition.index} "
            f"of topic {span.partition.topic_id} are damaged"
        )


def parse_trailer(tail: Buffer, name: str) -> Trailer:
    """Reads the trailer at the end of `tail`, which is the whole object or its last bytes."""
    if len(tail) < TRAILER_BYTES:
        raise CorruptObject(f"{name}: {len(tail)} bytes are too few for a WAL object")
    trailer = memoryview(tail)[-TRAILER_BYTES:]
    fields = trailer[: _FIELDS.size]
    seal, magic = _SEAL.unpack(trailer[_FIELDS.size :])
    if magic != _TRAILER_MAGIC:
        raise CorruptObject(f"{name}: it does not end as a WAL object does: truncated, or something else")
    if crc32c(fields) != seal:
        raise CorruptObject(f"{name}: the trailer's checksum does not hold")
    footer_length, footer_checksum, size_bytes, version, _ = _FIELDS.unpack(fields)
    if version not in READ_VERSIONS:
        raise CorruptObject(
            f"{name}: WAL format {version} is not one this version reads (it reads {READ_VERSIONS[0]} to "
            f"{READ_VERSIONS[-1]}): let the version of lakestream that wrote it move it into the table"
        )
    if footer_length + TRAILER_BYTES > size_bytes:
        raise CorruptObject(f"{name}: a footer of {footer_length} bytes does not fit into {size_bytes}")
    return Trailer(footer_length, footer_checksum, size_bytes, version)


def parse_footer(data: Buffer, trailer: Trailer, name: str) -> Footer:
    """`data` is the footer alone. Checks it and that its spans fill the object without gaps."""
    if len(data) != trailer.footer_length or crc32c(data) != trailer.footer_checksum:
        raise CorruptObject(f"{name}: the footer's checksum does not hold")
    footer = decode_footer(data, trailer.version, name)
    position = 0
    for span in footer.spans:
        if span.position != position or span.length < 0:
            raise CorruptObject(f"{name}: the span at {span.position} is not at {position}, where it belongs")
        position += span.length
    if position + trailer.footer_length + TRAILER_BYTES != trailer.object_size_bytes:
        raise CorruptObject(f"{name}: the spans end at {position}, the object's size says otherwise")
    return footer


def check_object(data: Buffer, name: str) -> Footer:
    """The footer of a whole object, every byte of which was verified. Raises `CorruptObject`."""
    trailer = parse_trailer(data, name)
    if len(data) != trailer.object_size_bytes:
        raise CorruptObject(f"{name}: {len(data)} bytes where {trailer.object_size_bytes} were written")
    view = memoryview(data)
    footer = parse_footer(view[-TRAILER_BYTES - trailer.footer_length : -TRAILER_BYTES], trailer, name)
    for span in footer.spans:
        verify_span(span, view[span.position : span.position + span.length], name=name)
    return footer
