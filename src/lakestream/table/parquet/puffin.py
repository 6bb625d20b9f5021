"""Puffin, the container of statistics: blobs one after the other, and a footer that says what and where they are."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError
from pyiceberg.table.puffin import MAGIC_BYTES, Footer, PuffinBlobMetadata, PuffinFile

from lakestream.errors import CorruptObject
from lakestream.model import Blob

_FLAGS: Final = bytes(4)
"""The footer is not compressed."""
_LENGTH: Final = struct.Struct("<I")
_END_BYTES: Final = 12
"""Length of the footer, flags and magic."""
_MAX_FOOTER_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """`data` as it lies in the file, compressed with `codec` if there is one."""

    blob: Blob
    data: bytes
    codec: str | None = None


def write_puffin(blobs: Sequence[StoredBlob]) -> tuple[bytes, int]:
    """The file, and how many of its bytes are the footer."""
    body = bytearray(MAGIC_BYTES)
    entries = []
    for stored in blobs:
        blob = stored.blob
        entries.append(
            PuffinBlobMetadata.model_validate(
                {
                    "type": blob.kind,
                    "fields": list(blob.fields),
                    "snapshot-id": blob.snapshot_id,
                    "sequence-number": blob.sequence_number,
                    "offset": len(body),
                    "length": len(stored.data),
                    "compression-codec": stored.codec,
                    "properties": dict(blob.properties),
                }
            )
        )
        body += stored.data
    payload = Footer(blobs=entries).model_dump_json(exclude_none=True).encode()
    footer = b"".join((MAGIC_BYTES, payload, len(payload).to_bytes(4, "little"), _FLAGS, MAGIC_BYTES))
    return bytes(body) + footer, len(footer)


def puffin_entries(path: str, data: bytes) -> list[PuffinBlobMetadata]:
    """What the footer says. Raises `CorruptObject`, also for what is legal and nobody writes: a compressed footer."""
    end = data[-_END_BYTES:]
    length = _LENGTH.unpack_from(end)[0] if len(end) == _END_BYTES else len(data)
    if length > min(len(data) - _END_BYTES, _MAX_FOOTER_BYTES):
        raise CorruptObject(f"{path} is no Puffin file, or its footer is damaged: {length} bytes of {len(data)}")
    try:
        return PuffinFile(data).footer.blobs
    except (ValidationError, ValueError, LookupError, OverflowError, struct.error) as error:
        raise CorruptObject(f"the footer of {path} cannot be read: {error}") from error


def read_puffin(path: str, data: bytes) -> list[StoredBlob]:
    """Raises `CorruptObject`."""
    found = []
    for entry in puffin_entries(path, data):
        if entry.offset < len(MAGIC_BYTES) or entry.length < 0 or entry.offset + entry.length > len(data):
            raise CorruptObject(f"{path}: a blob at {entry.offset} of {entry.length} bytes is not in the file")
        blob = Blob(
            entry.type, tuple(entry.fields), entry.snapshot_id, entry.sequence_number, dict(entry.properties or {})
        )
        part = data[entry.offset : entry.offset + entry.length]
        found.append(StoredBlob(blob, part, entry.compression_codec))
    return found
