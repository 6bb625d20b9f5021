"""What the footer of a WAL object says: where each partition's bytes lie, and what became of earlier objects.

A receipt tells what became of sections of another object, so that the log can be rebuilt from the bucket alone. It
speaks of a section if it names its partition; one that names none speaks of all of them. Of a section that no receipt
speaks of the outcome is not known. In a section that a receipt speaks of:

- each `Placed` range is in the log: its batches, in their order, have the offsets from `base_offset` on;
- every other byte is not in the log and can never enter it from this object. `Refused` ranges give the reason for
  single batches. A section without a `Placed` range was given up as a whole: it was uploaded again under another name,
  refused, or its topic is gone.

Receipts are written after the fact, in the next object of the same broker. One exception is written before: an object
that replaces another (an upload that got no answer and was tried again, a section below the fence) gives up the
replaced sections in its own footer, so that of the two at most one can ever count. And before objects are deleted, an
object without sections gives all of them up, and repeats what they told of objects that stay.
"""

from typing import Final

import msgspec

from lakestream.errors import CorruptObject
from lakestream.model import StreamPartition
from lakestream.objects import Buffer

FORMAT_VERSION: Final = 3
READ_VERSIONS: Final = (2, FORMAT_VERSION)
NOT_TOLD: Final = -1
"""Format 2 told only where the first extent of a section begins: the counts and lengths of its receipts are this."""


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Where a partition's section lies in the object. `checksum` is CRC32C of its bytes."""

    partition: StreamPartition
    position: int
    length: int
    checksum: int
    record_count: int
    max_timestamp_ms: int


class Placed(msgspec.Struct, frozen=True, array_like=True):
    """These bytes of the object are an extent of the log. `position` counts from the object's start."""

    base_offset: int
    record_count: int
    position: int
    length: int


class RefusedRange(msgspec.Struct, frozen=True, array_like=True):
    """These bytes of the object did not enter the log: `reason` is the commit's (duplicate, fenced, …)."""

    position: int
    length: int
    reason: str


class SectionReceipt(msgspec.Struct, frozen=True, array_like=True):
    """What became of one section: ranges of whole batches, each list in order of position."""

    partition: StreamPartition
    placed: tuple[Placed, ...] = ()
    refused: tuple[RefusedRange, ...] = ()


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """What became of sections of an earlier object."""

    object_key: str
    sections: tuple[SectionReceipt, ...]


class Footer(msgspec.Struct, frozen=True, array_like=True):
    """`markers` and `decisions` have room for the ends of transactions. This version writes none, and refuses an object
    that has some: it would rebuild a log without them."""

    session: str
    flush: int
    generation: int
    spans: tuple[Span, ...]
    receipts: tuple[Receipt, ...]
    markers: tuple[msgspec.Raw, ...] = ()
    decisions: tuple[msgspec.Raw, ...] = ()


class _Receipt2(msgspec.Struct, frozen=True, array_like=True):
    object_key: str
    bases: tuple[tuple[StreamPartition, int], ...]


class _Footer2(msgspec.Struct, frozen=True, array_like=True):
    session: str
    flush: int
    generation: int
    spans: tuple[Span, ...]
    receipts: tuple[_Receipt2, ...]


_encoder: Final = msgspec.msgpack.Encoder(uuid_format="bytes")
_decoder: Final = msgspec.msgpack.Decoder(Footer)
_decoder2: Final = msgspec.msgpack.Decoder(_Footer2)


def encode_footer(footer: Footer) -> bytes:
    return _encoder.encode(footer)


def decode_footer(data: Buffer, version: int, name: str) -> Footer:
    """Of any version that is read."""
    try:
        if version == FORMAT_VERSION:
            footer = _decoder.decode(data)
        else:
            old = _decoder2.decode(data)
            footer = Footer(old.session, old.flush, old.generation, old.spans, tuple(map(_upgraded, old.receipts)))
    except msgspec.DecodeError as error:
        raise CorruptObject(f"{name}: the footer does not decode: {error}") from error
    if footer.markers or footer.decisions:
        raise CorruptObject(
            f"{name}: it holds ends of transactions: read it with the version of lakestream that wrote it"
        )
    return footer


def _upgraded(receipt: _Receipt2) -> Receipt:
    return Receipt(
        receipt.object_key,
        tuple(
            SectionReceipt(partition, (Placed(base_offset, NOT_TOLD, NOT_TOLD, NOT_TOLD),))
            for partition, base_offset in receipt.bases
        ),
    )
