"""What must hold in every state, and what every run must come to once faults stop."""

from collections.abc import Sequence
from operator import lt

from .cells import Phase, Status
from .frontier import fits
from .step import Rules


def broken(rules: Rules, cells: Sequence[int]) -> str:
    """The first invariant that does not hold; empty if all do."""
    shape = rules.shape
    for p in shape.partitions:
        head, table = cells[shape.head_frontier[p]], cells[shape.table_frontier[p]]
        places = sorted(place for f in shape.flushes if (place := cells[shape.place[f][p]]))
        if places != list(range(1, len(places) + 1)):
            return "offsets are not dense and unique"
        if table > len(places):
            return "the table's frontier is beyond the log's end"
        if head > table:
            return "the log was told that the table holds more than it does"
        for f in shape.flushes:
            place, extent = cells[shape.place[f][p]], cells[shape.extent[f][p]]
            if not place and cells[shape.status[f][p]] == Status.ACKED:
                return "an acked record is not in the log"
            if place > head and not extent:
                return "a record above the head's frontier has no extent"
            if extent and (extent > len(shape.objects) or not cells[shape.object[f][extent - 1]]):
                return "an extent names an object that is not in the bucket"
            if place and (problem := _read(rules, cells, p, place - 1, extent)):
                return problem
    for i in shape.files:
        if cells[shape.condemned[i]] and fits(shape, cells, i):
            return "a file is condemned that can still be committed"
    return ""


def _read(rules: Rules, cells: Sequence[int], p: int, offset: int, extent: int) -> str:
    """A reader with any view there ever was: it is served the record, or told to load a newer view that has it."""
    head, table = cells[rules.shape.head_frontier[p]], cells[rules.shape.table_frontier[p]]
    for frontier in range(table + 1):
        route = head if "reader-routed-by-the-head" in rules.bugs else frontier
        if offset < route:
            if offset >= frontier:
                return "a reader with an older view skips a record"
        elif not extent and offset >= table:
            return "a record is neither in the table nor in the WAL"
    return ""


def fallen(rules: Rules, before: Sequence[int], after: Sequence[int]) -> str:
    """Of two neighbours, before generations are renumbered."""
    end = rules.shape.monotone
    if after[:end] == list(before[:end]):
        return ""
    return "a frontier, a fence or the generation falls" if any(map(lt, after[:end], before[:end])) else ""


def at_rest(rules: Rules, cells: Sequence[int]) -> bool:
    """All records are in the table, and nothing dead is left."""
    shape = rules.shape
    return (
        all(cells[cell] in (Phase.IDLE, Phase.OVER) for cell in shape.phase)
        and not any(cells[cell] for objects in shape.object for cell in objects)
        and not any(cells[cell] for ends in shape.end for cell in ends)
        and not any(cells[cell] for orphan in shape.orphan for cell in orphan)
        and all(
            cells[shape.head_frontier[p]] == cells[shape.table_frontier[p]] == shape.next_offset(cells, p)
            for p in shape.partitions
        )
    )
