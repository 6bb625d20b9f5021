"""Bugs in what the bucket tells of the log, which show when the metadata store is lost."""

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from lakestream.bucket import rebuilding
from lakestream.frontier.collecting import collector
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving import advance
from lakestream.stream.appending import append
from lakestream.wal import Placed, Receipt, SectionReceipt
from simulator.bugs.registry import loss_bug, staged, swapped
from simulator.faults import Aim
from simulator.scene import Stage


@staged(Stage(scene={"saves": 0.0, "idempotent": 1.0, "brokers": 3}))
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

    with swapped(append, real, unmarked):
        yield


@loss_bug
def table_commit_before_its_receipt() -> Iterator[None]:
    """What goes into a table is written down nowhere else: of its last flushes a broker that died wrote no receipt."""

    async def nothing(*_: Any) -> None:
        return None

    with swapped(advance, advance.write_receipts, nothing):
        yield


@staged(
    Stage(
        aims=(Aim("delete", "crash", 0.2, 6),),
        scene={"partial_deletes": 0.8, "collects": 1.0, "rest_most_s": 0.1, "saves": 0.1},
        pipeline={"generation_interval_ms": 20, "grace_ms": 0},
    )
)
@loss_bug
def receipts_deleted_with_their_object() -> Iterator[None]:
    """Dead objects go one by one, and with them what they tell of those that are left."""
    real = collector.Collector.__init__
    lakes: WeakKeyDictionary[collector.Collector, Lake] = WeakKeyDictionary()

    def begin(self: collector.Collector, lake: Lake) -> None:
        real(self, lake)
        lakes[self] = lake

    async def careless(self: collector.Collector, dead: Sequence[str], _: Any) -> list[str]:
        return await lakes[self].delete_wal(dead)

    with (
        swapped(collector.Collector, real, begin),
        swapped(collector.Collector, collector.Collector.delete_dead, careless),
    ):
        yield


@staged(Stage(scene={"saves": 0.0, "idempotent": 1.0, "brokers": 3}))
@loss_bug
def sections_appended_as_they_were_written() -> Iterator[None]:
    """Of a producer of which nothing is known whatever comes first begins: what was before it is shut out."""
    with swapped(rebuilding, rebuilding.Waiting, lambda _: None):
        yield
