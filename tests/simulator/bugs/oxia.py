"""Bugs in the root row's protocol, by which many keys change together on a store that changes one at a time."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from lakestream.errors import Unavailable
from lakestream.metadata.stores.oxia.service import OxiaService, Stamp
from lakestream.metadata.stores.oxia.shards import applying, root, rows, writing
from lakestream.metadata.stores.oxia.shards.root import Grave, Overlay, Redo, Root, RootAt
from lakestream.metadata.stores.oxia.shards.writing import KnownRoot, Writer, find_own, finish
from simulator.bugs.registry import oxia_bug, staged, swapped
from simulator.faults import Aim
from simulator.scene import Stage

_LATE_ROWS: Final = Stage(aims=(Aim("apply", "repeated request", 0.4, 40), Aim("apply", "slow", 0.2, 20)))


@oxia_bug
def rows_written_before_the_root() -> Iterator[None]:
    """Others see, and overwrite, what no root has decided."""
    real = Writer.swing

    async def hasty(self: Writer, shard: str, known: KnownRoot, redo: Sequence[Redo], graves: Sequence[Grave]) -> bool:
        coming = RootAt(Root(known.at.root.sequence + 1, redo, (), ()), 0, known.at.at_ms or self._oxia._world.now_ms())  # type: ignore[attr-defined]
        await applying.apply_redo(self._oxia, shard, coming, {})
        return await real(self, shard, known, redo, graves)

    with swapped(Writer, Writer.swing, hasty):
        yield


@oxia_bug
def redo_not_finished_by_the_next_writer() -> Iterator[None]:
    """The next root takes the place of one whose rows were never written."""

    async def skipped(oxia: OxiaService, shard: str, known: KnownRoot) -> bool:
        return True

    with swapped(writing, finish, skipped):
        yield


@staged(_LATE_ROWS)
@oxia_bug
def stale_row_resurrected() -> Iterator[None]:
    """No grave hides a row that was put, late, where a newer delete had been."""
    with swapped(writing, root.graves_of, lambda at: []):
        yield


@staged(_LATE_ROWS)
@oxia_bug
def graves_dropped_unswept() -> Iterator[None]:
    """What lies below a grave is not removed before the grave is forgotten."""

    async def skipped(*_: Any) -> None:
        return None

    with swapped(writing, applying.sweep, skipped):
        yield


@staged(_LATE_ROWS)
@oxia_bug
def rows_count_however_late() -> Iterator[None]:
    """A row that was put after its grave was dropped counts."""
    real = root.is_late
    with swapped(root, real, lambda *_: False), swapped(applying, real, lambda *_: False):
        yield


@staged(_LATE_ROWS)
@oxia_bug
def reader_does_not_read_the_root_again() -> Iterator[None]:
    """Rows of several moments are taken for one."""
    with (
        swapped(rows, rows.is_one_moment, lambda *_: True),
        swapped(rows, Overlay, lambda first, *_: Overlay(first)),
    ):
        yield


@oxia_bug
def reader_without_the_redo() -> Iterator[None]:
    """What a root carries and no row holds yet is not there."""
    with (
        swapped(Overlay, Overlay.present, lambda self, kind, key, row: row),
        swapped(Overlay, Overlay.keys, lambda *_: []),
    ):
        yield


@oxia_bug
def lost_answer_taken_for_a_lost_race() -> Iterator[None]:
    """A root that was written, but whose answer was lost, is written once more."""

    async def never(oxia: OxiaService, shard: str, root: Root, lost: Unavailable) -> Stamp | None:
        return None

    with swapped(writing, find_own, never):
        yield
