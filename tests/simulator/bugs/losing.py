"""Bugs in what the bucket tells of the log, which show when the metadata store is lost."""

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

from lakestream.bucket import rebuilding
from lakestream.frontier.collecting import collector
from lakestream.stream import append
from lakestream.wal import Placed, Receipt, SectionReceipt
from simulator.bugs.registry import loss_bug


@loss_bug
def refusals_not_marked_in_receipts() -> Iterator[None]:
    """A receipt says where a section begins in the log: what was refused of it counts as appended."""
    real = append.receipts_of

    def whole(section: SectionReceipt) -> SectionReceipt:
        if not section.placed:
            return section
        start = min(each.position for each in (*section.placed, *section.refused))
        end = max(each.position + each.length for each in (*section.placed, *section.refused))
        return SectionReceipt(section.partition, (Placed(section.placed[0].base_offset, 0, start, end - start),))

    def unmarked(*args: Any) -> list[Receipt]:
        return [Receipt(each.object_key, tuple(map(whole, each.sections))) for each in real(*args)]

    with patch.object(append, "receipts_of", unmarked):
        yield


@loss_bug
def table_commit_before_its_receipt() -> Iterator[None]:
    """What goes into a table is written down nowhere else: of its last flushes a broker that died wrote no receipt."""

    async def nothing(*_: Any) -> None:
        return None

    with patch("lakestream.frontier.moving.advance.write_receipts", nothing):
        yield


@loss_bug
def receipts_deleted_with_their_object() -> Iterator[None]:
    """Dead objects go one by one, and with them what they tell of those that are left."""

    async def careless(self: collector.Collector, dead: Sequence[str], _: Any) -> list[str]:
        gone: list[str] = await self._lake.delete(dead)
        return gone

    with patch.object(collector.Collector, "_delete", careless):
        yield


@loss_bug
def sections_appended_as_they_were_written() -> Iterator[None]:
    """Of a producer of which nothing is known whatever comes first begins: what was before it is shut out."""
    with patch.object(rebuilding, "Waiting", lambda _: None):
        yield
