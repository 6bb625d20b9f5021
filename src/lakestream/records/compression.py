"""The four compressions of record batches; decompressed into one bounded buffer per thread."""

import struct
import threading
from typing import Any, Final, NamedTuple

import cramjam
import numpy as np
import numpy.typing as npt

from lakestream.errors import CorruptRecords, RecordsTooLarge, UnsupportedRecords

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024
"""Of one batch. A smaller request can ask for terabytes; nothing honest comes near this."""

_KEPT_BYTES: Final = 8 * 1024 * 1024
"""A buffer that held more than this is given back to the system."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = len(_XERIAL_MAGIC) + 8
_LZ4_FAST: Final = 1
_OUT_OF_ROOM: Final = "failed to write whole buffer"
"""How the decompressors' streams say that the output is full."""

_FRAMED: Final = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}

Bytes = npt.NDArray[np.uint8]


class OutOfRoom(Exception):
    """More comes out than the caller had room for: no more than that was decompressed."""


class BatchCompression(NamedTuple):
    """How batches are to be compressed. `level` None: the codec's own default."""

    codec: int
    level: int | None = None


class _Scratch(threading.local):
    """Reserved whole and touched as needed: the system backs only the pages that were written."""

    buffer: Bytes | None = None

    def take(self) -> Bytes:
        if self.buffer is None:
            self.buffer = np.empty(MAX_DECOMPRESSED_BYTES, np.uint8)
        return self.buffer

    def settle(self, used_bytes: int) -> None:
        if used_bytes > _KEPT_BYTES:
            self.buffer = None


_scratch: Final = _Scratch()


def decompress(codec: int, data: memoryview, room_bytes: int = MAX_DECOMPRESSED_BYTES) -> Bytes:
    """The plain bytes; valid until this thread decompresses again.

    Raises:
        OutOfRoom: more than room_bytes come out, which are fewer than MAX_DECOMPRESSED_BYTES.
        CorruptRecords: the data is not what the codec makes.
        RecordsTooLarge: more than MAX_DECOMPRESSED_BYTES come out.
        UnsupportedRecords: no such codec.
    """
    out = _scratch.take()[:room_bytes]
    try:
        if codec == SNAPPY:
            size = _snappy(data, out)
        elif codec in _FRAMED:
            size = _FRAMED[codec](data, out.data)
        else:
            raise UnsupportedRecords(f"compression codec {codec} does not exist")
    except cramjam.DecompressionError as error:
        _scratch.settle(room_bytes)
        if _OUT_OF_ROOM in str(error):
            raise _overflow(out) from error
        raise CorruptRecords(f"the batch cannot be decompressed: {error}") from error
    _scratch.settle(size)
    return out[:size]


def compress(compression: BatchCompression, data: memoryview) -> Any:
    """What `decompress` and every client undo."""
    codec, level = compression
    if codec == GZIP:
        return cramjam.gzip.compress(data, level=level)
    if codec == SNAPPY:
        return cramjam.snappy.compress_raw(data)
    if codec == LZ4:
        # Java's client reads frames of independent blocks only.
        stream = cramjam.lz4.Compressor(level=level or _LZ4_FAST, content_checksum=False, block_linked=False)
        stream.compress(bytes(data))
        return stream.finish()
    if codec == ZSTD:
        return cramjam.zstd.compress(data, level=level)
    raise UnsupportedRecords(f"compression codec {codec} does not exist")


def _overflow(out: Bytes) -> Exception:
    if len(out) < MAX_DECOMPRESSED_BYTES:
        return OutOfRoom(f"more than {len(out)} bytes come out")
    return RecordsTooLarge(f"a batch may not decompress to more than {MAX_DECOMPRESSED_BYTES} bytes")


def _snappy(data: memoryview, out: Bytes) -> int:
    """Raw snappy, or the blocks of raw snappy that Java's xerial stream writes."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, out, 0)
    position, size = _XERIAL_HEADER_BYTES, 0
    while position < len(data):
        if len(data) - position < 4:
            raise CorruptRecords("a snappy stream is cut short")
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length <= 0 or length > len(data) - position:
            raise CorruptRecords("a snappy block does not fit its stream")
        size += _snappy_block(data[position : position + length], out, size)
        position += length
    return size


def _snappy_block(data: memoryview, out: Bytes, start: int) -> int:
    if cramjam.snappy.decompress_raw_len(data) > len(out) - start:
        raise _overflow(out)
    return int(cramjam.snappy.decompress_raw_into(data, out[start:].data))
