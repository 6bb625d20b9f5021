"""How the files of a table are compressed: Iceberg's own table properties, with a default of ours."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import pyarrow as pa
import zstandard

from lakestream.objects.store import Buffer

CODEC_PROPERTY: Final = "write.parquet.compression-codec"
LEVEL_PROPERTY: Final = "write.parquet.compression-level"
COMPRESSION_PROPERTIES: Final = (CODEC_PROPERTY, LEVEL_PROPERTY)

_CODECS: Final[dict[str, tuple[str, range]]] = {
    "zstd": ("zstd", range(1, 23)),
    "gzip": ("gzip", range(1, 10)),
    "brotli": ("brotli", range(12)),
    "snappy": ("snappy", range(0)),
    "lz4": ("lz4", range(0)),
    "lz4_raw": ("lz4", range(0)),
    "uncompressed": ("none", range(0)),
}
"""Iceberg's name: PyArrow's name and levels. PyArrow's lz4 is Parquet's LZ4_RAW, the one that all readers agree on."""

_ZSTD_LEVEL: Final = 1
_PARQUET_CODECS: Final = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}


class Compression(msgspec.Struct, frozen=True, array_like=True):
    """`codec` is PyArrow's name. `level` is None for a codec's own choice."""

    codec: str = "zstd"
    level: int | None = _ZSTD_LEVEL


_ZSTD_1: Final = Compression()
_NEAR: Final = zstandard.ZstdCompressionParameters.from_level(_ZSTD_LEVEL, window_log=19, hash_log=11, min_match=7)
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
        self._near = zstandard.ZstdCompressor(compression_params=_NEAR).compress if compression == _ZSTD_1 else None
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
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL if level is None else level).compress
    arrows: Callable[[Buffer], Buffer] = pa.Codec(
        "lz4_raw" if codec == "lz4" else codec, compression_level=level
    ).compress
    return arrows


DEFAULT_COMPRESSION: Final = _ZSTD_1
UNCOMPRESSED: Final = Compressor(Compression("none", None))


def chosen(properties: Mapping[str, str]) -> Compression:
    """What a table's properties ask for; zstd at level 1 if they say nothing. Raises `ValueError` with a sentence for
    what no file can have."""
    default = DEFAULT_COMPRESSION
    name = properties.get(CODEC_PROPERTY, default.codec).lower()
    if name not in _CODECS:
        raise ValueError(f"{CODEC_PROPERTY} is {name!r}, and streams write {', '.join(_CODECS)}")
    codec, levels = _CODECS[name]
    text = properties.get(LEVEL_PROPERTY)
    if text is None:
        return default if codec == default.codec else Compression(codec, None)
    if not levels:
        return Compression(codec, None)
    if not text.isascii() or not text.isdigit() or int(text) not in levels:
        raise ValueError(f"{LEVEL_PROPERTY} is {text!r}, and {name} has the levels {levels[0]} to {levels[-1]}")
    return Compression(codec, int(text))


def chosen_or_default(properties: Mapping[str, str]) -> Compression:
    """The same for what nobody could refuse: a property that asks for nothing possible is as good as none."""
    try:
        return chosen(properties)
    except ValueError:
        return DEFAULT_COMPRESSION
