"""The nouns every room shares. Data only: frozen, slotted, without behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID


class StreamPartition(NamedTuple):
    """One partition of one topic's life. The UUID, not the name, is the identity."""

    topic_id: UUID
    index: int  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One live file of a table, as its manifest describes it.

    A bound of None means that the manifest does not say: the file may match.
    Offsets and partitions are inclusive bounds. `path` is what the table names,
    a full URL. `trouble`, if there is any, says why no stream can be served
    from it.
    """

    path: str
    record_count: int
    size_bytes: int
    partition_min: int | None
    partition_max: int | None
    offset_min: int | None
    offset_max: int | None
    timestamp_max_ms: int | None
    spec_id: int = 0
    trouble: str = ""
    timestamp_min_ms: int | None = field(default=None, compare=False)
    place: tuple[object, ...] = field(default=(), compare=False)
    """In a spec of the owner's: the values of its fields."""
    order_id: int = field(default=0, compare=False)
    """Of the table's sort order in which its rows are; 0: they are in none, or it is not known."""


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Which bytes of a Puffin file of `file_bytes` name the deleted rows of one data file.

    `row_count` is that file's rows, which only the view tells: before, no row can be in the vector.
    """

    data_file: str
    start: int
    size_bytes: int
    file_bytes: int
    row_count: int = 0


@dataclass(frozen=True, slots=True)
class PositionDeletes:
    """Rows (data file path, position) of a table that are gone: a delete file, or a `vector` in a Puffin file.

    `trouble`, if there is any, says why it cannot be applied: what it deletes is then unknown, and nothing that it
    might concern may be served.
    """

    path: str
    record_count: int = 0
    trouble: str = ""
    vector: DeletionVector | None = None


@dataclass(frozen=True, slots=True)
class Blob:
    """What a statistics file says of some columns, by their field ids, and of which snapshot that was true."""

    kind: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StatisticsFile:
    """A Puffin file with statistics of a table, as the table names it. `path` is a full URL."""

    path: str
    size_bytes: int
    footer_bytes: int
    blobs: tuple[Blob, ...]


class ColumnMetrics(NamedTuple):
    """What a file says of one of its columns, by field id. None: it does not. Bounds are as Iceberg stores them, uncut
    and inclusive."""

    field_id: int
    size_bytes: int
    value_count: int
    null_count: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None


class FileMetrics(NamedTuple):
    """`split_offsets`: where its row groups begin."""

    columns: tuple[ColumnMetrics, ...] = ()
    split_offsets: tuple[int, ...] = ()


NO_METRICS: Final = FileMetrics()


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that a worker wrote and no table names yet. Bounds are inclusive.

    `spec_id` 0: unpartitioned, may hold many stream partitions. 1: one stream partition, one offset window. Any other
    is the owner's: the same, and of one `place`, which has the values of the spec's fields. `order_id`: of the sort
    order of the owner's in which its rows are; 0: they are by partition and offset.
    """

    path: str
    spec_id: int
    size_bytes: int
    record_count: int
    partition_min: int
    partition_max: int
    offset_min: int
    offset_max: int
    timestamp_max_ms: int | None
    metrics: FileMetrics = NO_METRICS
    place: tuple[object, ...] = ()
    order_id: int = 0
