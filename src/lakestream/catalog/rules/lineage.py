"""Which rows of a table are still what was appended. Pure.

Every snapshot that we commit says from which offsets on that is so, with a checksum that binds it to the snapshot: one
that another engine made says nothing, whatever it copied. Our next commit after it begins anew at the frontier that it
found. So nobody has to look through the table's past, which may have been expired.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from pyiceberg.table.snapshots import Snapshot

from lakestream.catalog.rules.stamp import vector_of
from lakestream.model import DataFile, WrittenFile
from lakestream.records import crc32c
from lakestream.table.schema import frontier_text, parse_frontier
from lakestream.table.view import View

INTACT_PROPERTY: Final = "lakestream.intact-from"


def intact_summary(snapshot_id: int, intact_from: tuple[int, ...]) -> dict[str, str]:
    """What the summary of our own snapshot says."""
    text = frontier_text(intact_from)
    return {INTACT_PROPERTY: f"{text} {_seal(snapshot_id, text)}"}


def intact_in(snapshot: Snapshot | None, frontier: tuple[int, ...]) -> tuple[int, ...]:
    """From where on the rows of a table with this frontier, whose newest snapshot this is, are as they were appended.
    A snapshot that was rolled back to lacks some below the frontier."""
    if snapshot is None or snapshot.summary is None:
        return frontier
    text, _, seal = (snapshot.summary.get(INTACT_PROPERTY) or "").partition(" ")
    if seal != _seal(snapshot.snapshot_id, text):
        return frontier
    try:
        reached = parse_frontier(vector_of(snapshot) or "")
        return parse_frontier(text) if reached == frontier else frontier
    except ValueError:
        return frontier


def intact_after(
    view: View, add: Sequence[WrittenFile], remove: Sequence[DataFile], frontier: tuple[int, ...], gaps: int = 0
) -> tuple[int, ...]:
    """The same after our commit on the view. We never change a row, so if there are as many more as the frontier moves
    over offsets that have one (all but `gaps`), all that were there are there."""
    rows = sum(file.record_count for file in add) - sum(file.record_count for file in remove)
    moved = sum(after - before for before, after in zip_longest(view.frontier, frontier, fillvalue=0))
    return view.intact_from if rows + gaps == moved else view.frontier


def _seal(snapshot_id: int, text: str) -> str:
    return f"{crc32c(f'{snapshot_id} {text}'.encode()):08x}"
