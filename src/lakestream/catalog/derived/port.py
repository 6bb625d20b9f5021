"""Derived tables as the pipeline sees them: beside a stream's table, filled from its rows, each with a frontier of its
own. A commit is one attempt on exactly one view, as with the tables of streams."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from lakestream.catalog.port import Named
from lakestream.metadata.names.derived import DerivedRow
from lakestream.metadata.names.rows import TableName
from lakestream.model import FileMetrics
from lakestream.table.deriving.recipe import DerivedShape
from lakestream.table.view import View


@dataclass(frozen=True, slots=True)
class DerivedFile:
    """A stored Parquet file that no table names yet, of rows or of deleted places."""

    path: str
    bucket: int
    is_deletes: bool
    record_count: int
    size_bytes: int
    metrics: FileMetrics


@dataclass(frozen=True, slots=True)
class DerivedView:
    """One metadata of a derived table. The view's `topic_id` is the table's id, its `shape` that of the table's own
    columns."""

    view: View
    shape: DerivedShape
    row: DerivedRow


class DerivedTables(Protocol):
    """Raises `Unavailable` when an outcome is unknown: load again to learn it."""

    async def every(self) -> list[DerivedRow]:
        """Of all topics, living or not."""
        ...

    async def of_topic(self, topic_id: UUID) -> list[DerivedRow]:
        """Of one topic."""
        ...

    async def load(self, row: DerivedRow) -> DerivedView | None:
        """The present view. None: the table is not made yet, or has been put away."""
        ...

    async def announce(self, topic_id: UUID, shape: DerivedShape, frontier: tuple[int, ...] = ()) -> DerivedRow:
        """Writes down that the topic has such a table, before it is made. Idempotent: one of the kind that is written
        down is returned as it is."""
        ...

    async def create(self, row: DerivedRow, topic: str, shape: DerivedShape, table: TableName) -> DerivedView:
        """Makes the table that was announced. Idempotent; raises `Conflict` if it has been put away meanwhile."""
        ...

    async def reached(self, row: DerivedRow, frontier: tuple[int, ...]) -> DerivedRow:
        """Where a table that is not made yet would begin."""
        ...

    async def rename(self, row: DerivedRow, table: TableName) -> None:
        """To follow the stream's table. A name that is another's stays theirs, and the table keeps its own."""
        ...

    async def commit(
        self,
        derived: DerivedView,
        *,
        add: Sequence[DerivedFile],
        remove: AbstractSet[str],
        frontier: tuple[int, ...],
    ) -> DerivedView:
        """Adds and removes files and moves the frontier in one snapshot on main, on exactly this view, else raises
        `Conflict`. Refuses (`ValueError`) a frontier that falls, and removal of files that the view lacks."""
        ...

    async def evolve(self, derived: DerivedView, shape: DerivedShape) -> DerivedView:
        """Gives the table these columns, on exactly this view."""
        ...

    async def named(self, row: DerivedRow) -> Named:
        """See `TableCatalog.named`. Raises `UnknownStream` if there is no such table."""
        ...

    async def put_away(self, row: DerivedRow) -> str | None:
        """Keeps the table as `<name>__<first 8 of its id>`, an ordinary one that nobody fills. Idempotent; the name, or
        None if it was never made."""
        ...
