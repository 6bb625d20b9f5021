"""What a query reads, as it travels from the door to the process that runs it."""

from collections.abc import Mapping
from dataclasses import dataclass

from lakestream.frontier.moving.tiles.tile import Tile
from lakestream.model import DataFile, PositionDeletes
from lakestream.table.reading.ranges import Ranges
from lakestream.table.shape import TableShape


@dataclass(frozen=True, slots=True)
class StreamSource:
    """The rows of a stream in `ranges`: below the frontier out of `files`, from there on out of `tiles` of the log.

    `needs_schemas`: where the tail names schemas that the table does not know, the query is given up, so that the table
    may learn them; otherwise those values are bytes."""

    location: str
    shape: TableShape
    files: tuple[DataFile, ...]
    deletes: tuple[PositionDeletes, ...]
    below: Ranges
    above: Ranges
    tiles: tuple[Tile, ...]
    needs_schemas: bool = True


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """The rows of one snapshot of a table, as Iceberg has them. `snapshot_id` None: the table has no rows yet."""

    metadata_location: str
    snapshot_id: int | None
    io: Mapping[str, str]


Source = StreamSource | SnapshotSource


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows under the name that the query has for them."""

    namespace: str
    name: str
    rows: Source
