"""Rows of a shard as they are read: root, rows, root again, for one point in time."""

import asyncio
from collections.abc import Sequence
from typing import Final

from lakestream.errors import Unavailable
from lakestream.metadata.stores.oxia.keys import key_of, root_key, row_key
from lakestream.metadata.stores.oxia.service import OxiaService, Record
from lakestream.metadata.stores.oxia.shards.root import Overlay, OxiaRow, RootAt, decode_root, decode_row

ATTEMPTS: Final = 30
PAUSE_S: Final = 0.002
SLACK: Final = 16
"""Rows that a scan with a limit takes beyond it, for those that turn out to be deleted."""
Place = tuple[str, str]
"""A row's kind and key."""


async def read_root(oxia: OxiaService, shard: str) -> RootAt:
    [record] = await oxia.read(shard, [root_key(shard)])
    return decode_root(shard, record)


async def read_rows(oxia: OxiaService, shard: str, places: Sequence[Place]) -> list[OxiaRow | None]:
    """Without any root: what has been applied so far."""
    records = await oxia.read(shard, [row_key(shard, kind, key) for kind, key in places])
    return [None if record is None else decode_row(record) for record in records]


def is_one_moment(before: RootAt, after: RootAt) -> bool:
    """Whether rows read between two roots are known as of the second, with both laid over them: what a root in between
    did to them is nowhere else."""
    return after.root.sequence <= before.root.sequence + 1


async def read_places(oxia: OxiaService, shard: str, places: Sequence[Place]) -> list[OxiaRow | None]:
    """What they hold at one point in time."""
    before = await read_root(oxia, shard)
    for attempt in range(ATTEMPTS):
        rows = await read_rows(oxia, shard, places)
        # One key alone is decided by the first root and its own row: whatever is newer was so during this call.
        after = before if len(places) == 1 else await read_root(oxia, shard)
        if is_one_moment(before, after):
            overlay = Overlay(before, after)
            return [overlay.present(kind, key, row) for (kind, key), row in zip(places, rows, strict=True)]
        before = after
        await asyncio.sleep(PAUSE_S * attempt)
    raise _busy(shard)


async def read_range(
    oxia: OxiaService, shard: str, kind: str, start: str, end: str, *, limit: int | None = None
) -> list[tuple[str, OxiaRow]]:
    """Rows of a range at one point in time, in order."""
    if start >= end or limit == 0:
        return []
    before = await read_root(oxia, shard)
    slack = SLACK
    for attempt in range(ATTEMPTS):
        most = None if limit is None else limit + slack + len(before.root.redo)
        records = await oxia.scan(shard, row_key(shard, kind, start), row_key(shard, kind, end), limit=most)
        after = await read_root(oxia, shard)
        if is_one_moment(before, after):
            found = _laid_over(Overlay(before, after), shard, kind, (start, end), records, is_cut=len(records) == most)
            if limit is None or len(found) >= limit or len(records) != most:
                return found[:limit]
            slack *= 8
            continue
        before = after
        await asyncio.sleep(PAUSE_S * attempt)
    raise _busy(shard)


async def read_pairs(
    oxia: OxiaService, shard: str, kinds: tuple[str, str], start: str, end: str
) -> tuple[dict[str, OxiaRow], dict[str, OxiaRow]]:
    """Rows of the first kind in a range, in order, and those of the second kind that have the same keys; at one point
    in time."""
    if start >= end:
        return {}, {}
    first, second = kinds
    before = await read_root(oxia, shard)
    for attempt in range(ATTEMPTS):
        records = await oxia.scan(shard, row_key(shard, first, start), row_key(shard, first, end))
        keys = list(dict.fromkeys([key_of(shard, r.key) for r in records] + Overlay(before).keys(first, start, end)))
        others = dict(zip(keys, await read_rows(oxia, shard, [(second, key) for key in keys]), strict=True))
        after = await read_root(oxia, shard)
        if is_one_moment(before, after):
            overlay = Overlay(before, after)
            found = dict(_laid_over(overlay, shard, first, (start, end), records, is_cut=False))
            beside = {key: overlay.present(second, key, others.get(key)) for key in found}
            return found, {key: row for key, row in beside.items() if row is not None}
        before = after
        await asyncio.sleep(PAUSE_S * attempt)
    raise _busy(shard)


def _laid_over(
    overlay: Overlay, shard: str, kind: str, bounds: tuple[str, str], records: Sequence[Record], *, is_cut: bool
) -> list[tuple[str, OxiaRow]]:
    rows: dict[str, OxiaRow | None] = {key_of(shard, record.key): decode_row(record) for record in records}
    # Beyond the last record of a scan that was cut short nothing is known.
    last = next(reversed(rows)) if is_cut else None
    carried = (key for key in overlay.keys(kind, *bounds) if last is None or key <= last)
    found = ((key, overlay.present(kind, key, rows.get(key))) for key in sorted({*rows, *carried}))
    return [(key, row) for key, row in found if row is not None]


def _busy(shard: str) -> Unavailable:
    return Unavailable(f"the metadata of {shard} changes too fast to be read at one point in time; nothing was written")
