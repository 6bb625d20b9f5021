"""Deletion vectors: bitmaps of the deleted rows of one data file each, in Puffin files of other engines.

PyIceberg parses the footer and CRoaring the bitmaps, which checks that they are well formed; the frame around a bitmap,
and whether it is the one that the manifest means, is checked here. Nothing vouches for these files, so they are tried
out first. A bitmap takes about as much memory as its bytes, however many rows it names.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Final

from pyiceberg.table.puffin import PuffinBlobMetadata
from pyroaring import BitMap64

from lakestream.errors import CorruptObject, StorageError
from lakestream.model import DeletionVector, PositionDeletes
from lakestream.objects.paths import same_form
from lakestream.table.parquet.puffin import puffin_entries
from lakestream.table.sandbox import SANDBOX

MAX_FILE_BYTES: Final = 64 << 20
"""Hundreds of millions of rows, whatever their pattern."""
_KIND: Final = "deletion-vector-v1"
_LENGTH: Final = struct.Struct(">I")
_MAGIC: Final = b"\xd1\xd3\x39\x64"
_CHECKSUM: Final = struct.Struct(">I")

Vectors = dict[str, BitMap64]


def check_size(delete: PositionDeletes, vector: DeletionVector) -> None:
    """Before anything is read. Raises `StorageError`."""
    if not 0 <= vector.file_bytes <= MAX_FILE_BYTES:
        raise StorageError(
            f"{delete.path} has {vector.file_bytes} bytes of deletion vectors, and {MAX_FILE_BYTES} at most are read:"
            " rewrite the data files with the engine that wrote it"
        )


def parse_vectors(path: str, data: bytes, deletes: Sequence[PositionDeletes]) -> Vectors:
    """By data file the vectors of a Puffin file that these deletes name. `CorruptObject` unless each is whole, and what
    both the manifest and the file itself say that it is. Blocking: the file is tried out first."""
    SANDBOX.check(try_vectors, path, data)
    blobs = {(blob.offset, blob.length): blob for blob in puffin_entries(path, data)}
    found: Vectors = {}
    for delete in deletes:
        vector = delete.vector
        if vector is None:
            raise ValueError(f"{delete.path} is no vector")
        named = f"the deletion vector at {vector.start} of {path}"
        _check_named(named, delete, vector, blobs.get((vector.start, vector.size_bytes)))
        rows = _bitmap(named, data[vector.start : vector.start + vector.size_bytes])
        if len(rows) != delete.record_count:
            raise CorruptObject(f"{named} is damaged: it has {len(rows)} rows where {delete.record_count} were deleted")
        if rows and rows.max() >= vector.row_count:
            raise CorruptObject(
                f"{named} deletes row {rows.max()} of {vector.data_file}, which has {vector.row_count}: it is another"
                " file's, or damaged"
            )
        found[same_form(vector.data_file)] = rows
    return found


def try_vectors(path: str, data: bytes) -> None:
    """An `Attempt`. One vector that is damaged says nothing of the others."""
    for blob in puffin_entries(path, data):
        try:
            _bitmap(path, data[blob.offset : blob.offset + blob.length])
        except CorruptObject:
            continue


def _check_named(named: str, delete: PositionDeletes, vector: DeletionVector, blob: PuffinBlobMetadata | None) -> None:
    """That the file itself says of the vector what the manifest says."""
    if blob is None:
        raise CorruptObject(f"{named} is not there: the file has none of {vector.size_bytes} bytes at that place")
    if blob.type != _KIND or blob.compression_codec is not None:
        raise CorruptObject(f"{named} is {blob.type!r} ({blob.compression_codec}), and only {_KIND} is read")
    data_file = blob.properties.get("referenced-data-file", "")
    if same_form(data_file) != same_form(vector.data_file):
        raise CorruptObject(f"{named} is of {data_file or 'no file'}, not of {vector.data_file}, as the manifest says")
    count = blob.properties.get("cardinality")
    if count != str(delete.record_count):
        raise CorruptObject(f"{named} has {count} rows by its own words, and {delete.record_count} by the manifest's")


def _bitmap(named: str, data: bytes) -> BitMap64:
    """Length, magic, the bitmap, CRC32 of the magic and the bitmap."""
    framed = data[_LENGTH.size : len(data) - _CHECKSUM.size]
    if len(data) < _LENGTH.size + len(_MAGIC) + _CHECKSUM.size or not framed.startswith(_MAGIC):
        raise CorruptObject(f"{named} is damaged: it does not begin as a vector does")
    if _LENGTH.unpack_from(data) != (len(framed),):
        raise CorruptObject(f"{named} is damaged: its length is another")
    if _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size) != (zlib.crc32(framed),):
        raise CorruptObject(f"{named} is damaged: its checksum does not hold")
    try:
        return BitMap64.deserialize(framed[len(_MAGIC) :])
    except (ValueError, LookupError, OverflowError) as error:
        raise CorruptObject(f"{named} is damaged: {error}") from error
