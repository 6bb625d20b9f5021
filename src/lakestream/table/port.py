"""History as brokers see it: the records below a view's frontier, from the files of that view."""

from dataclasses import dataclass
from typing import Protocol

from lakestream.records import BatchCompression
from lakestream.table.view import View


@dataclass(frozen=True, slots=True)
class History:
    """`parts` joined are whole record batches. [offset asked for, next_offset) is covered: what is not in them is a
    gap."""

    parts: list[memoryview]
    next_offset: int


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What became of reads through a cache, and what it holds."""

    hits: int = 0
    misses: int = 0
    size_bytes: int = 0


class HistorySource(Protocol):
    """Keep a view's `files` the same object as long as it is the same view: their index is then built once.

    Raises of every method: `ObjectMissing` when a file is gone (the view is old), `CorruptObject` when a record is not
    what it was, or stands twice."""

    async def read(
        self,
        view: View,
        *,
        partition: int,
        offset: int,
        end_offset: int,
        max_bytes: int,
        changed: bool = False,
        compression: BatchCompression | None = None,
        spare: bool = False,
    ) -> History:
        """The records of the partition from the first at or after `offset`, below end_offset: at least one if there is
        one, then as many as fit max_bytes uncompressed. `changed`: also those that are not what their checksums say, as
        they are. `compression`: of the batches; None: none. `spare`: none of the records, and `offset` as the next
        one, where they would have to be loaded while readers take each other's memory away."""
        ...

    async def first_at_or_after(
        self,
        view: View,
        *,
        partition: int,
        timestamp_ms: int,
        offset: int,
        end_offset: int,
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record in [offset, end_offset) that is not older."""
        ...

    async def newest(
        self,
        view: View,
        *,
        partition: int,
        end_offset: int,
        offset: int = 0,
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the newest record in [offset, end_offset); of several, the first."""
        ...
