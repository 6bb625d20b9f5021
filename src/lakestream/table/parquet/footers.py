"""What Parquet files say of themselves: their footers, parsed and judged before a row is read."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakestream.errors import CorruptObject, LakestreamError
from lakestream.table.parquet.seal import check_footer, chunk_checksums, chunk_range, footer_checksum, is_in_log_order
from lakestream.table.reading.files import UNBOUNDED
from lakestream.table.sandbox import SANDBOX

_FOOTER_END: Final = struct.Struct("<I4s")
_UNITS_PER_MS: Final = {"milliseconds": 1, "microseconds": 1000, "nanoseconds": 1_000_000}
UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, LookupError, OverflowError)
"""How Arrow and its bindings tell that bytes are not what they should be."""
_OPTIONAL_COLUMNS: Final = {
    "_key": "_key",
    "_value": "_value",
    "_headers_raw": "_headers_raw",
    "_headers": "_headers.list.element.key",
}
"""Columns that need not be read if this leaf of them holds nulls only."""
_JUDGED_LEAVES: Final = (
    "_stream_partition",
    "_offset",
    "_timestamp",
    "_timestamp_type",
    *_OPTIONAL_COLUMNS.values(),
)
"""Of which a row group's statistics are looked at."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """What a footer says of a row group. Bounds are inclusive and never too narrow."""

    path: str
    index: int
    first_row: int
    row_count: int
    partition_min: int
    partition_max: int
    offset_min: int
    offset_max: int
    timestamp_max_ms: int
    size_bytes: int
    empty_columns: frozenset[str]
    implied: Mapping[str, int]
    """Columns that need not be read: what the first row has. Offsets count on from there, the others stay the same."""


@dataclass(frozen=True, slots=True)
class ParquetFooter:
    """`leaves` are the paths of the stored columns in their order. `exact` remembers, per row group whose rows were
    read, the true bounds of each partition in it, deleted rows included."""

    metadata: pq.FileMetaData
    leaves: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    checksums: tuple[int, ...] | None
    exact: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return int(self.metadata.serialized_size) * 4 + 512 * len(self.groups)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column of a row group. `checksum` is CRC32C of its bytes, if the file has it."""

    column: str
    start: int
    end: int
    checksum: int | None


def footer_bytes(path: str, tail: bytes) -> int:
    """How much of the end of the file is footer, by its own words; more than there may be if they are damaged."""
    if len(tail) < _FOOTER_END.size:
        raise CorruptObject(f"{path} is no Parquet file: {len(tail)} bytes")
    length, magic = _FOOTER_END.unpack_from(tail, len(tail) - _FOOTER_END.size)
    if magic != b"PAR1":
        raise CorruptObject(f"{path} is no Parquet file: it ends in {magic!r}")
    return int(length) + _FOOTER_END.size


def parse_footers(
    paths: Sequence[str], tails: Sequence[bytes | LakestreamError]
) -> list[ParquetFooter | LakestreamError]:
    """Of each file its footer, or what is wrong with it. A tail ends as its file does and holds the whole footer, or is
    an error already. Blocking: footers of other engines are tried out first."""
    cut = [*map(_cut, paths, tails)]
    foreign = [
        (place, path, footer)
        for place, (path, footer) in enumerate(zip(paths, cut, strict=True))
        if isinstance(footer, bytes) and footer_checksum(path) is None
    ]
    verdicts = SANDBOX.check_each(try_footer, [(path, footer) for _, path, footer in foreign])
    for (place, _, _), trouble in zip(foreign, verdicts, strict=True):
        cut[place] = trouble or cut[place]
    return [*map(_parse, paths, cut)]


def _cut(path: str, tail: bytes | LakestreamError) -> bytes | LakestreamError:
    """The footer alone. Ours has its checksum."""
    if isinstance(tail, LakestreamError):
        return tail
    try:
        footer = tail[-footer_bytes(path, tail) :]
        check_footer(path, footer)
    except LakestreamError as error:
        return error
    return footer


def _parse(path: str, footer: bytes | LakestreamError) -> ParquetFooter | LakestreamError:
    if isinstance(footer, LakestreamError):
        return footer
    try:
        return _parse_footer(path, footer)
    except LakestreamError as error:
        return error


def try_footer(path: str, data: bytes) -> None:
    """Looks at all that is ever looked at in a footer. Arrow aborts the process over many that are damaged, when it is
    asked for a column of a row group."""
    footer = _parse_footer(path, data)
    for group in footer.groups:
        chunks_of(group, footer, [leaf.split(".", 1)[0] for leaf in footer.leaves])


def _parse_footer(path: str, data: bytes) -> ParquetFooter:
    try:
        metadata = pq.read_metadata(pa.BufferReader(data))
        checksums = chunk_checksums(path, metadata)
        schema = metadata.schema
        leaves = tuple(schema.column(position).path for position in range(metadata.num_columns))
        places = {leaf: position for position, leaf in enumerate(leaves)}
        units = _units_per_ms(schema.column(places["_timestamp"])) if "_timestamp" in places else None
        is_sealed, in_order = checksums is not None, is_in_log_order(metadata)
        groups = []
        first_row = 0
        for index in range(metadata.num_row_groups):
            described = metadata.row_group(index)
            group = _row_group(path, described, places, index, first_row, units, is_sealed, in_order)
            first_row += group.row_count
            groups.append(group)
    except UNREADABLE as error:
        raise CorruptObject(f"the footer of {path} cannot be read: {error}") from error
    return ParquetFooter(metadata, leaves, tuple(groups), checksums)


def _units_per_ms(column: Any) -> int | None:
    """Of the column's numbers; None: they are no times. What the file itself says: to have Arrow derive its own schema
    takes as long as all else here."""
    kind = column.logical_type
    return _UNITS_PER_MS[json.loads(kind.to_json())["timeUnit"]] if kind.type == "TIMESTAMP" else None


def _row_group(
    path: str,
    group: Any,
    places: Mapping[str, int],
    index: int,
    first_row: int,
    units_per_ms: int | None,
    is_sealed: bool,
    in_order: bool,
) -> RowGroup:
    chunks = {leaf: group.column(places[leaf]) for leaf in _JUDGED_LEAVES if leaf in places}
    partition_min, partition_max = _bounds(chunks.get("_stream_partition"))
    offset_min, offset_max = _bounds(chunks.get("_offset"))
    _, newest = _bounds(chunks.get("_timestamp")) if units_per_ms else (0, UNBOUNDED)
    if units_per_ms and newest != UNBOUNDED:
        newest = newest // units_per_ms + 1
    return RowGroup(
        path=path,
        index=index,
        first_row=first_row,
        row_count=group.num_rows,
        partition_min=partition_min,
        partition_max=partition_max,
        offset_min=offset_min,
        offset_max=offset_max,
        timestamp_max_ms=newest,
        size_bytes=group.total_byte_size,
        empty_columns=frozenset(name for name, leaf in _OPTIONAL_COLUMNS.items() if _is_empty(chunks.get(leaf))),
        implied=_implied(chunks, group.num_rows, in_order=in_order) if is_sealed else {},
    )


def _implied(chunks: Mapping[str, Any], row_count: int, *, in_order: bool) -> dict[str, int]:
    """Of a sealed file, whose statistics are under its checksum. Where our writer let rows in only by partition and
    offset, each once, offsets of one partition that are as many as lie between their bounds are all of those."""
    implied = {}
    for name in ("_stream_partition", "_timestamp_type"):
        low, high = _bounds(chunks.get(name))
        if low == high:
            implied[name] = low
    low, high = _bounds(chunks.get("_offset"))
    if in_order and "_stream_partition" in implied and high - low + 1 == row_count:
        implied["_offset"] = low
    return implied


def _bounds(chunk: Any) -> tuple[int, int]:
    statistics = chunk.statistics if chunk is not None else None
    if statistics is None or not statistics.has_min_max or not isinstance(statistics.max_raw, int):
        return 0, UNBOUNDED
    return statistics.min_raw, statistics.max_raw


def _is_empty(chunk: Any) -> bool:
    statistics = chunk.statistics if chunk is not None else None
    return statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values


def chunks_of(group: RowGroup, footer: ParquetFooter, columns: Sequence[str]) -> list[Chunk]:
    """Where the columns are in a row group."""
    found = []
    try:
        described = footer.metadata.row_group(group.index)
        for position, leaf in enumerate(footer.leaves):
            if leaf.split(".", 1)[0] in columns:
                start, end = chunk_range(described.column(position))
                at = group.index * len(footer.leaves) + position
                checksum = None if footer.checksums is None else footer.checksums[at]
                found.append(Chunk(leaf, start, end, checksum))
    except UNREADABLE as error:
        raise CorruptObject(f"{named(group)} cannot be found in its file: {error}") from error
    if any(not 0 <= chunk.start <= chunk.end for chunk in found):
        raise CorruptObject(f"{named(group)} cannot be found in its file: the footer's positions make no sense")
    return found


def named(group: RowGroup) -> str:
    """For people who have to find it."""
    return (
        f"row group {group.index} of {group.path} (partitions {group.partition_min} to {group.partition_max}, "
        f"offsets {group.offset_min} to {group.offset_max})"
    )
