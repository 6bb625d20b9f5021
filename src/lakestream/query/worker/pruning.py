"""What of a table a filter can match, by bounds and by filters of keys: files, row groups and pieces of the tail that
cannot are not read.

The question is put to Arrow, which simplifies a filter by what is known of a fragment. The fragments name no files.
"""

import re
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import and_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

from lakestream.frontier.moving.tiles.tile import Tile
from lakestream.model import DataFile
from lakestream.table.reading.rows import DecodedGroup

_FORMAT: Final = ds.ParquetFileFormat()
_NOWHERE: Final = fs.LocalFileSystem()
_US_PER_MS: Final = 1000
_KEY: Final = "_key"
_HEX: Final = re.compile(r"\b(?:[0-9A-F]{2})+\b")
_MOST_KEYS: Final = 32
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_BY_NUMBERS: Final = (pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us"), _TIMESTAMP)


def possible(schema: pa.Schema, condition: pc.Expression | None, known: Sequence[pc.Expression]) -> list[int]:
    """Which of those of which this much is known can have rows that match, by their numbers."""
    if condition is None:
        return [*range(len(known))]
    fragments = [
        _FORMAT.make_fragment(str(number), filesystem=_NOWHERE, partition_expression=each)
        for number, each in enumerate(known)
    ]
    asked = ds.FileSystemDataset(fragments, schema, _FORMAT, _NOWHERE)
    return [int(fragment.path) for fragment in asked.get_fragments(filter=condition)]


def keys_in(condition: pc.Expression | None) -> list[bytes]:
    """Keys that the filter may be about: guesses, some of which may be none, as Arrow prints them."""
    text = "" if condition is None else str(condition)
    if _KEY not in text:
        return []
    return [*map(bytes.fromhex, dict.fromkeys(_HEX.findall(text)))][:_MOST_KEYS]


def without_keys(known: pc.Expression, absent: Sequence[bytes]) -> list[pc.Expression]:
    """What is known of rows that have none of these keys, in cases: Arrow learns nothing from an inequality."""
    keys = [pa.scalar(key, pa.binary()) for key in sorted(absent)]
    field = pc.field(_KEY)
    between = [(field > low) & (field < high) for low, high in pairwise(keys)]
    return [known & each for each in (field < keys[0], *between, field > keys[-1], field.is_null())]


def known_of_file(file: DataFile) -> pc.Expression:
    newest, oldest = file.timestamp_max_ms, file.timestamp_min_ms
    return _all(
        _between("_stream_partition", file.partition_min, file.partition_max, pa.int32()),
        _between("_offset", file.offset_min, file.offset_max, pa.int64()),
        _times(None if oldest is None else oldest * _US_PER_MS, newest),
    )


def known_of_tile(tile: Tile) -> pc.Expression:
    parts = tile.slices
    newest = max(extent.max_timestamp_ms for part in parts for extent in part.extents)
    return _all(
        _between("_stream_partition", parts[0].partition, parts[-1].partition, pa.int32()),
        _between("_offset", min(part.start for part in parts), max(part.end for part in parts) - 1, pa.int64()),
        _times(None, newest),
    )


def known_of_group(group: DecodedGroup, schema: pa.Schema) -> pc.Expression:
    """By the statistics of its columns, where the file has them in the types that the table has."""
    metadata = group.footer.metadata
    stored = metadata.schema.to_arrow_schema()
    about = metadata.row_group(group.row_group.index)
    known = []
    for number, leaf in enumerate(group.footer.leaves):
        if leaf not in schema.names or stored.field(leaf).type != schema.field(leaf).type:
            continue
        kind = schema.field(leaf).type
        statistics = about.column(number).statistics
        if statistics is None or not statistics.has_min_max:
            continue
        has_nulls = not statistics.has_null_count or statistics.null_count > 0
        if kind in _BY_NUMBERS:
            known.append(_between(leaf, statistics.min_raw, statistics.max_raw, kind, has_nulls=has_nulls))
        elif kind in (pa.string(), pa.binary()):
            known.append(_between(leaf, statistics.min, statistics.max, kind, has_nulls=has_nulls))
    return _all(*known)


def _times(oldest_us: int | None, newest_ms: int | None) -> pc.Expression | None:
    newest_us = None if newest_ms is None else (newest_ms + 1) * _US_PER_MS - 1
    return _between("_timestamp", oldest_us, newest_us, _TIMESTAMP, has_nulls=True)


def _between(
    name: str, low: object, high: object, kind: pa.DataType, *, has_nulls: bool = False
) -> pc.Expression | None:
    """Inclusive; what is not known bounds nothing. Of nulls Arrow understands only this form."""
    field = pc.field(name)
    found = [] if low is None else [field >= pa.scalar(low, kind)]
    if high is not None:
        found.append(field <= pa.scalar(high, kind))
    known = [each | field.is_null() for each in found] if has_nulls else found
    return reduce(and_, known) if known else None


def _all(*known: pc.Expression | None) -> pc.Expression:
    return reduce(and_, (each for each in known if each is not None), pc.scalar(True))
