"""The table of a stream as the engine sees it: load a view, commit against that view.

A commit is one attempt. It holds only if the table is still exactly the one the view
shows; otherwise it raises `Conflict` and changes nothing, and the caller starts over
from a fresh view. Nothing here ever retries on a newer table by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Begun
from lakestream.model import DataFile, StatisticsFile, WrittenFile
from lakestream.table.shape import RAW, TableShape
from lakestream.table.view import View

if TYPE_CHECKING:
    from lakestream.catalog.derived.port import DerivedTables
    from lakestream.catalog.staging import TableCommits


@dataclass(frozen=True, slots=True)
class Named:
    """What one table metadata holds on to: the frontier written in it, and the path of every file that any snapshot it
    retains names. `collectable` is False if the owner forbade to delete files that nothing names (`gc.enabled`).
    `version` grows with every commit; -1: the catalog does not count them."""

    frontier: tuple[int, ...]
    paths: frozenset[str]
    collectable: bool = True
    version: int = -1


class TableViews(Protocol):
    """What a broker needs of the catalog. Raises `Unavailable` when an outcome is unknown: load again to learn it."""

    async def load(self, topic_id: UUID) -> View:
        """The present view. `UnknownStream` if no table is bound to the topic."""
        ...

    async def pointer(self, topic_id: UUID) -> str | None:
        """The present metadata location, cheap: a view is stale when its own differs. None: no table."""
        ...

    async def detach(self, topic_id: UUID) -> str | None:
        """Keeps a deleted topic's table as `<name>__<first 8 of the UUID>`. Idempotent; the new name, or None."""
        ...

    async def adoptable(self, table: TableName, partitions: int) -> Begun | None:
        """How a topic of so many partitions could go on in the table of that name, which is nobody's; its UUID would be
        the topic's. None: there is no such table. Raises `InvalidSetting` with the reason why none can. Changes
        nothing."""
        ...

    async def claim(self, table: TableName, name: str, begun: Begun) -> Begun:
        """Before the topic `name` is listed: from now on nobody else's commits get into that table, and it ends where
        the answer says, which may be farther than `begun`. Idempotent. Raises as `adoptable` does."""
        ...

    async def adopt(self, topic_id: UUID, name: str, frontier: tuple[int, ...], *, table: TableName) -> bool:
        """Binds the table of that UUID to the listed topic `name`, whose log begins at this frontier. Idempotent.
        False: there is none to adopt. Raises `StorageError` if the table is no longer one that can go on from there,
        `Conflict` if somebody changes it right now."""
        ...


class TableCatalog(TableViews, Protocol):
    """The whole of it, for those who fill tables."""

    async def create(
        self, topic_id: UUID, name: str, partitions: int, *, table: TableName | None = None, shape: TableShape = RAW
    ) -> View:
        """Makes the table of the topic `name` in this shape, bound to its UUID, frontier all zero, as `table` (see
        `metadata.topic_tables`). Idempotent: a table bound to this UUID is returned as it is, also under another name;
        a name that is another table's raises `Conflict`."""
        ...

    async def named(self, topic_id: UUID) -> Named:
        """Of the present metadata, for whoever collects what nothing names. `UnknownStream` if no table is bound to the
        topic; `StorageError` rather than an answer that leaves anything out."""
        ...

    async def commit(
        self,
        view: View,
        *,
        add: Sequence[WrittenFile],
        remove: Sequence[DataFile],
        frontier: tuple[int, ...],
        gaps: int = 0,
        split: Sequence[str] = (),
    ) -> View:
        """Adds and removes files and moves the frontier in one snapshot on main, on exactly this view. `gaps`: how many
        of the offsets that the frontier passes have no row, because they are of aborted transactions or of markers.
        `split`: the transactional ids of transactions of which the snapshot has a part; it says so.

        The frontier may grow in length (new partitions) and must not fall anywhere; a commit without files makes an
        empty snapshot. Refuses (`ValueError`) a falling frontier or removal of files the view lacks."""
        ...

    async def evolve(self, view: View, shape: TableShape) -> View:
        """Gives the table this shape, which keeps every column and schema of the view's (`rules.evolving`), on exactly
        this view, in an empty snapshot: whoever reads a row finds what it was written by. The owner's own columns stay.
        Refuses (`ValueError`) a shape that lacks or changes what the view's has."""
        ...

    @property
    def keeps_statistics(self) -> bool:
        """Whether every commit takes statistics along, so that it is worth to compute some."""
        ...

    async def describe(self, view: View, statistics: StatisticsFile) -> View:
        """Gives the view's snapshot these statistics in the place of those that the view shows, on exactly this view.
        Files that no snapshot has any more are deleted."""
        ...

    async def owner(self, table: TableName) -> UUID | None:
        """The topic whose table has that name, living or not, also when its detaching was begun and not finished.
        None: there is no such table, or it is none of ours."""
        ...


class OpenCatalog(TableCatalog, Protocol):
    """A catalog as a process opens it. Whatever differs from one kind to another is asked of it here."""

    @property
    def place(self) -> str:
        """Where the tables are if not in the metadata store, for people; else empty."""
        ...

    @property
    def derived(self) -> "DerivedTables | None":
        """The tables that are derived from those of streams; None: this kind of catalog does not keep any."""
        ...

    @property
    def commits(self) -> "TableCommits":
        """How its tables change, for those who keep to a table's metadata instead of a view."""
        ...

    def broker_views(self) -> TableViews:
        """The tables as one broker serves them: to fill one, it has to be what the catalog shows; to read it, the last
        that was good will do."""
        ...

    async def close(self) -> None:
        """Ends its threads."""
        ...
