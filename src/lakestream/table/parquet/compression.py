"""How the files of a table are compressed: Iceberg's own table properties, with a default of ours."""

from collections.abc import Mapping
from typing import Final

import msgspec

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


class Compression(msgspec.Struct, frozen=True, array_like=True):
    """`codec` is PyArrow's name. `level` is None for a codec's own choice."""

    codec: str = "zstd"
    level: int | None = 1


DEFAULT_COMPRESSION: Final = Compression()


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
