"""Pages made smaller, as a table's properties ask for it."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import zstandard

from lakestream.objects.store import Buffer
from lakestream.table.parquet.compression import DEFAULT_COMPRESSION, Compression

_PARQUET_CODECS: Final = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}
_NEAR: Final = zstandard.ZstdCompressionParameters.from_level(1, window_log=19, hash_log=11, min_match=7)
"""zstd at level 1 with a table of 8 KiB instead of 64. Events repeat what was just there: of orders, clicks, changes of
a database, measurements and log lines it makes files 1 to 9 % smaller in 8 to 22 % less time; of prose and code they
would be 5 to 30 % larger, so it has to win on a page of the column first."""
_TRIED_BYTES: Final = 256 * 1024
_PAGES_A_CHOICE: Final = 64
"""Before both are tried again: data changes, and a try costs a page's time."""


class Compressor:
    """Makes pages smaller, one at a time. `codec` is Parquet's number for how. Worth keeping from file to file: it
    learns what suits a column. One thread at a time."""

    def __init__(self, compression: Compression) -> None:
        self.codec: Final = _PARQUET_CODECS[compression.codec]
        self._usual = _usual(compression)
        self._near = (
            zstandard.ZstdCompressor(compression_params=_NEAR).compress if compression == DEFAULT_COMPRESSION else None
        )
        self._columns: dict[str, _Choice] = {}

    def compress(self, page: Buffer, column: str) -> Buffer:
        """The page of a column, whatever name that goes by."""
        if self._near is None or len(page) < _TRIED_BYTES:
            return self._usual(page)
        choice = self._columns.setdefault(column, _Choice(self._usual))
        if choice.pages_left:
            choice.pages_left -= 1
            return choice.compress(page)
        usual, near = self._usual(page), self._near(page)
        is_near = len(near) <= len(usual)
        choice.compress, choice.pages_left = self._near if is_near else self._usual, _PAGES_A_CHOICE
        return near if is_near else usual


class _Choice:
    """What a column's pages are compressed with, for so many more."""

    def __init__(self, compress: Callable[[Buffer], Buffer]) -> None:
        self.compress = compress
        self.pages_left = 0


def _usual(compression: Compression) -> Callable[[Buffer], Buffer]:
    codec, level = compression.codec, compression.level
    if codec == "none":
        return bytes
    if codec == "zstd":
        # Its memory serves page after page. Arrow makes its own anew for each, most of what a small page costs.
        return zstandard.ZstdCompressor(level=level or 1).compress
    arrows: Callable[[Buffer], Buffer] = pa.Codec(
        "lz4_raw" if codec == "lz4" else codec, compression_level=level
    ).compress
    return arrows


UNCOMPRESSED: Final = Compressor(Compression("none", None))
