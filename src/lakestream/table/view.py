"""A table at one moment: what readers of history and those who commit go by."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from lakestream.model import DataFile, PositionDeletes, StatisticsFile
from lakestream.table.layout import Layout, RowOrder
from lakestream.table.parquet.compression import DEFAULT_COMPRESSION, Compression
from lakestream.table.shape import RAW, TableShape


@dataclass(frozen=True, slots=True)
class View:
    """One table metadata and the frontier written in it.

    `files` are the live data files of main's current snapshot, immutable, as a rule a `reading.files.FileIndex`;
    `deletes` its position delete files.
    `frontier[p]` is the first offset of partition p that is not in the table.
    """

    topic_id: UUID
    table: str
    location: str
    metadata_location: str
    snapshot_id: int | None
    frontier: tuple[int, ...]
    files: Sequence[DataFile]
    deletes: tuple[PositionDeletes, ...]
    shape: TableShape = RAW
    compression: Compression = DEFAULT_COMPRESSION
    """Of files that are to be written for it."""
    sequence_number: int = 0
    """Of the snapshot."""
    intact_from: tuple[int, ...] = ()
    """From these offsets on, by partition (from 0 where it is shorter), the rows below the frontier are all there as
    they were appended: since they came, nothing but merges has moved them."""
    statistics: StatisticsFile | None = None
    """Of the snapshot, or of the nearest before it that has some."""
    last_column_id: int = 0
    """No column that the table has or had is beyond it."""
    layout: Layout | None = None
    """How the owner wants files to lie; None: as streams have them."""
    order: RowOrder | None = None
    """How the owner wants rows to lie inside of files; None: by offset."""
    own_names: frozenset[str] = frozenset()
    """Columns that the table's owner has added, and that are no part of its shape."""
