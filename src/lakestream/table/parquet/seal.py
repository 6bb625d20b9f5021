"""Checksums over whole files of ours, so that no damaged byte is ever decoded.

Parquet protects neither its footer nor the headers of its pages. So the name of a file that we write carries CRC32C of
its footer, and the footer carries CRC32C of every column chunk. The manifest that names the file thereby vouches
for all of it but the four bytes of magic it begins with, which nobody here reads. Files of other engines have names of
another form and no such checksums.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow.parquet as pq

from lakestream.errors import CorruptObject
from lakestream.records import crc32c

_SEALED: Final = re.compile(r"\.([0-9a-f]{8})\.parquet", re.ASCII)
_KEY: Final = "lakestream.chunks"
_KEY_OF_SORTED: Final = "lakestream.chunks-of-sorted"
"""In files whose rows are not in the log's order. Who knows only the other key does not read them."""
_PREFIX: Final = "crc32c:"
_DIGITS: Final = 8


def sealed_name(name: str, checksum: int) -> str:
    """The name of a file with this checksum of its footer."""
    return f"{name.removesuffix('.parquet')}.{checksum:08x}.parquet"


def footer_checksum(path: str) -> int | None:
    """What the file's name says; None: it is another engine's."""
    found = _SEALED.search(path, max(0, len(path) - len(".00000000.parquet")))
    return int(found.group(1), 16) if found is not None and found.end() == len(path) else None


def seal(checksums: Sequence[int], *, in_log_order: bool = True) -> dict[str, str]:
    """What the footer says of the column chunks, row group by row group, column by column."""
    return {_KEY if in_log_order else _KEY_OF_SORTED: _PREFIX + "".join(f"{checksum:08x}" for checksum in checksums)}


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
    said = metadata.metadata or {}
    text = said.get(_KEY.encode(), said.get(_KEY_OF_SORTED.encode(), b"")).decode()
    count = metadata.num_row_groups * metadata.num_columns
    if len(text) != len(_PREFIX) + _DIGITS * count:
        raise CorruptObject(f"the footer of {path} lacks the checksums of its column chunks")
    digits = range(len(_PREFIX), len(text), _DIGITS)
    return tuple(int(text[position : position + _DIGITS], 16) for position in digits)


def is_in_log_order(metadata: pq.FileMetaData) -> bool:
    """Of a sealed file: whether its rows are by partition and offset."""
    return _KEY.encode() in (metadata.metadata or {})


def chunk_range(chunk: Any) -> tuple[int, int]:
    """Where in the file a column chunk is."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size
