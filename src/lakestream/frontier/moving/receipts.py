"""Receipts of what goes into a table, written before it does.

Brokers write receipts after the fact: of its last flushes a broker that died has written none. Were such a flush
in the table already, a rebuilt log would hold it a second time. So whoever commits to a table first writes down, in an
object of its own beside the WAL, which extents it moves: a section that no receipt speaks of is in no table.

A table's receipt speaks of extents only. Unlike a broker's it does not say that the rest of their section was refused.

And receipts of what is about to be deleted: of several objects, some of which may be left when a collector dies.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from lakestream.frontier.lake import Lake
from lakestream.metadata.counters import cluster_id, known_cluster
from lakestream.metadata.log.head import Extent
from lakestream.model import StreamPartition
from lakestream.wal import Placed, Receipt, SectionReceipt, build, object_key, parse_key, session_name

_TABLE: Final = "table"
"""What the sessions of these objects begin with; no hexadecimal number does."""


def is_of_table(session: str) -> bool:
    return session.startswith(_TABLE)


async def write_receipts(lake: Lake, topic_id: UUID, moved: Mapping[int, Iterable[Extent]]) -> None:
    """`moved` by partition. One object; nothing if all of it lies inline."""
    placed: dict[str, dict[int, list[Placed]]] = defaultdict(lambda: defaultdict(list))
    for index, extents in moved.items():
        for extent in extents:
            if extent.object_key:
                count = extent.end_offset - extent.base_offset
                range_ = Placed(extent.base_offset, count, extent.position, extent.length)
                placed[extent.object_key][index].append(range_)
    if not placed:
        return
    receipts = [Receipt(key, _sections(topic_id, parts)) for key, parts in sorted(placed.items())]
    # Of the newest object's generation: it can be collected when that one can.
    generation = max(parse_key(key).generation for key in placed)
    await _write(lake, receipts, generation, _TABLE)


def given_up(object_keys: Iterable[str]) -> list[Receipt]:
    """What of these objects is in the log has its place in other receipts; the rest never will be in it."""
    return [Receipt(key, ()) for key in object_keys]


async def write_given_up(lake: Lake, receipts: Iterable[Receipt], generation: int) -> str:
    """One object, in this generation; its key."""
    once = {msgspec.msgpack.encode(receipt): receipt for receipt in receipts}
    return await _write(lake, list(once.values()), generation, "")


async def _write(lake: Lake, receipts: Sequence[Receipt], generation: int, kind: str) -> str:
    cluster = await known_cluster(lake.store) or await cluster_id(lake.store, lake.runtime)
    session = kind + session_name(lake.runtime.new_id(), cluster)
    built = build((), receipts, session=session, flush=1, generation=generation)
    key = object_key(generation, session, 1)
    await lake.objects.put(key, built.parts)
    return key


def _sections(topic_id: UUID, parts: Mapping[int, Iterable[Placed]]) -> tuple[SectionReceipt, ...]:
    ordered = sorted(parts.items())
    return tuple(SectionReceipt(StreamPartition(topic_id, index), tuple(ranges)) for index, ranges in ordered)
