"""Checksums over whole files of ours, so that no damaged byte is ever decoded.

Parquet protects neither its footer nor the headers of its pages. So the name of a file that we write carries CRC32C of
its footer, and the footer carries CRC32C of every column chunk. The manifest that names the file thereby vouches
for all of it but the four bytes of magic it begins with, which nobody here reads. Files of other engines have names of
another form and no such checksums.
"""

import io
import re
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakestream.errors import CorruptObject
from lakestream.records import crc32c

_SEALED: Final = re.compile(r"\.([0-9a-f]{8})\.parquet", re.ASCII)
_KEY: Final = "lakestream.chunks"
_PREFIX: Final = "crc32c:"
_DIGITS: Final = 8
_END_BYTES: Final = 8
"""Length of the footer and magic."""


def sealed_name(name: str, checksum: int) -> str:
    """The name of a file with this checksum of its footer."""
    return f"{name.removesuffix('.parquet')}.{checksum:08x}.parquet"


def footer_checksum(path: str) -> int | None:
    """What the file's name says; None: it is another engine's."""
    found = _SEALED.search(path, max(0, len(path) - len(".00000000.parquet")))
    return int(found.group(1), 16) if found is not None and found.end() == len(path) else None


def reserve(writer: pq.ParquetWriter, row_groups: int, schema: pa.Schema) -> None:
    """To be called before the writer is closed: makes room for the checksums."""
    columns = sum(_leaves(field.type) for field in schema)
    writer.add_key_value_metadata({_KEY: _PREFIX + "0" * (_DIGITS * columns * row_groups)})


def seal(sink: BinaryIO, start: int) -> int:
    """Fills the checksums of the finished file that lies in the sink from `start` on; returns its footer's."""
    end = sink.seek(0, 2)
    sink.seek(end - _END_BYTES)
    footer_bytes = int.from_bytes(sink.read(4), "little") + _END_BYTES
    sink.seek(end - footer_bytes)
    footer = bytearray(sink.read(footer_bytes))
    metadata = pq.read_metadata(pa.BufferReader(bytes(footer)))
    ranges = [(start + first, start + stop) for first, stop in chunk_ranges(metadata)]
    text = _PREFIX + "".join(f"{checksum:08x}" for checksum in _checksums(sink, ranges))
    room = _PREFIX + "0" * (len(text) - len(_PREFIX))
    position = footer.index(room.encode(), footer.index(_KEY.encode()))
    footer[position : position + len(text)] = text.encode()
    sink.seek(end - footer_bytes)
    sink.write(footer)
    return crc32c(footer)


def _checksums(sink: BinaryIO, ranges: Sequence[tuple[int, int]]) -> list[int]:
    if isinstance(sink, io.BytesIO):
        with sink.getbuffer() as view:
            return [crc32c(view[first:stop]) for first, stop in ranges]
    found = []
    for first, stop in ranges:
        sink.seek(first)
        found.append(crc32c(sink.read(stop - first)))
    return found


def check_footer(path: str, footer: bytes | memoryview) -> None:
    """`footer` with its length and the magic behind it. Before anything parses it."""
    expected = footer_checksum(path)
    if expected is not None and crc32c(footer) != expected:
        raise CorruptObject(
            f"the footer of {path} is damaged: it does not have the checksum that is in the file's name"
        )


def chunk_checksums(path: str, metadata: pq.FileMetaData) -> tuple[int, ...] | None:
    """Row group by row group, column by column; None: it is another engine's file."""
    if footer_checksum(path) is None:
        return None
    text = (metadata.metadata or {}).get(_KEY.encode(), b"").decode()
    count = metadata.num_row_groups * metadata.num_columns
    if len(text) != len(_PREFIX) + _DIGITS * count:
        raise CorruptObject(f"the footer of {path} lacks the checksums of its column chunks")
    digits = range(len(_PREFIX), len(text), _DIGITS)
    return tuple(int(text[position : position + _DIGITS], 16) for position in digits)


def chunk_range(chunk: Any) -> tuple[int, int]:
    """Where in the file a column chunk is."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def chunk_ranges(metadata: pq.FileMetaData) -> Sequence[tuple[int, int]]:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return [chunk_range(group.column(position)) for group in groups for position in range(metadata.num_columns)]


def _leaves(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_leaves(field.type) for field in kind)
    return _leaves(kind.value_type) if pa.types.is_list(kind) else 1
