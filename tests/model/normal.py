"""The quotient: states with the same future get one normal form.

Each rule forgets something of which nothing but itself can be told any more. All hold for the protocol as it is, none
for one with a planted bug, so bugs are looked for without it. docs/MODEL.md gives the reason of each rule, and a test
compares the quotient with the whole space where that is small enough.
"""

from .cells import Phase, Shape, Status
from .changes import clear_file, settle

_OPEN = (Status.TO_COMMIT, Status.UNKNOWN, Status.IN_FLIGHT, Status.ORPHANED)


def normal(shape: Shape, cells: list[int], *, keep_dead: bool) -> None:
    """In place. `keep_dead`: objects stay until a collector deletes them."""
    _take_verdicts(shape, cells)
    _forget_stale_files(shape, cells)
    _forget_readings(shape, cells)
    _count_from_the_frontier(shape, cells)
    for f in shape.flushes:
        if cells[shape.phase[f]] != Phase.IDLE:
            _forget_dead_objects(shape, cells, f, keep_dead=keep_dead)
            _forget_past(shape, cells, f)
    if shape.bounds.flushes > 1:
        _close_ranks(shape, cells)


def _take_verdicts(shape: Shape, cells: list[int]) -> None:
    """A fence never falls: what it refuses stays refused. An applied commit is never applied again: whether its broker
    finds the mark, is too late for it or dies changes nothing for others. A late request does what one that is sent
    now and whose reply is lost does; the one of a dying broker is a way to die."""
    for f in shape.flushes:
        if cells[shape.phase[f]] != Phase.UPLOADED:
            continue
        for p in shape.partitions:
            status = shape.status[f][p]
            if cells[status] == Status.APPLIED:
                cells[status] = Status.FAILED
            elif cells[status] == Status.IN_FLIGHT:
                cells[status] = Status.UNKNOWN
            elif cells[shape.stamp[f]] < cells[shape.fence[p]]:
                if cells[status] == Status.TO_COMMIT:
                    cells[status] = Status.FENCED
                elif cells[status] == Status.UNKNOWN:
                    cells[status] = Status.FAILED
        settle(shape, cells, f)


def _forget_stale_files(shape: Shape, cells: list[int]) -> None:
    """A frontier never falls: a file of which a range ends at or below it is never committed, and for others it makes
    no difference how far below it their ranges start. Nobody reads orphans."""
    for i in shape.files:
        for p in shape.partitions:
            if not cells[shape.end[i][p]]:
                continue
            if cells[shape.end[i][p]] <= cells[shape.table_frontier[p]]:
                clear_file(shape, cells, i)
                break
            cells[shape.start[i][p]] = cells[shape.table_frontier[p]]
    for orphan in shape.orphan:
        for cell in orphan:
            cells[cell] = 0


def _forget_readings(shape: Shape, cells: list[int]) -> None:
    """What a collector has read of an object stays true and can be read again."""
    if 2 not in cells[shape.sections]:
        return
    for f in shape.flushes:
        for k in shape.objects:
            for p, cell in enumerate(shape.section[f][k]):
                fenced = cells[shape.object[f][k]] < cells[shape.fence[p]]
                if cells[cell] == 2 and fenced and cells[shape.extent[f][p]] != k + 1:
                    cells[cell] = 1


def _count_from_the_frontier(shape: Shape, cells: list[int]) -> None:
    """Records below the head's frontier are rows that nothing moves. A flush that still asks for one keeps place 0."""
    for p in shape.partitions:
        passed = cells[shape.head_frontier[p]]
        if passed:
            cells[shape.head_frontier[p]] = 0
            cells[shape.table_frontier[p]] -= passed
            for f in shape.flushes:
                place = shape.place[f][p]
                cells[place] = max(0, cells[place] - passed)
            for i in shape.files:
                if cells[shape.end[i][p]]:
                    cells[shape.start[i][p]] -= passed
                    cells[shape.end[i][p]] -= passed


def _forget_dead_objects(shape: Shape, cells: list[int], f: int, *, keep_dead: bool) -> None:
    """No extent names it and no flush can make one name it: only collectors will look at it, whenever that is."""
    statuses = [cells[cell] for cell in shape.status[f]]
    wanted = cells[shape.phase[f]] != Phase.STAMPED and any(status in statuses for status in _OPEN)
    if cells[shape.phase[f]] == Phase.UPLOADED and not wanted:
        cells[shape.stamp[f]] = cells[shape.upload[f]] = 0
    if keep_dead:
        return
    extents = [cells[cell] for cell in shape.extent[f]]
    for k in reversed(shape.objects):
        named = k + 1 in extents
        if cells[shape.object[f][k]] and not named and not (wanted and cells[shape.upload[f]] == k):
            _remove(shape, cells, f, k)


def _remove(shape: Shape, cells: list[int], f: int, key: int) -> None:
    for k in range(key, shape.bounds.objects):
        behind = k + 1 < shape.bounds.objects
        cells[shape.object[f][k]] = cells[shape.object[f][k + 1]] if behind else 0
        for p in shape.partitions:
            cells[shape.section[f][k][p]] = cells[shape.section[f][k + 1][p]] if behind else 0
    if cells[shape.upload[f]] > key:
        cells[shape.upload[f]] -= 1
    for cell in shape.extent[f]:
        if cells[cell] > key + 1:
            cells[cell] -= 1


def _forget_past(shape: Shape, cells: list[int], f: int) -> None:
    """Every committed record is protected alike, acknowledged or not; a flush that is over and out of the log is as
    good as none, and its broker may begin another."""
    for cell in shape.status[f]:
        if cells[cell] == Status.ACKED:
            cells[cell] = Status.FAILED
    over = cells[shape.phase[f]] == Phase.OVER and not cells[shape.stamp[f]]
    if over:
        for cell in shape.status[f]:
            cells[cell] = Status.NONE
        if not any(cells[cell] for cell in (*shape.extent[f], *shape.object[f])):
            cells[shape.phase[f]] = Phase.IDLE


def _close_ranks(shape: Shape, cells: list[int]) -> None:
    """A broker's flushes stand in the order in which they began."""
    for broker in range(shape.bounds.brokers):
        flushes = shape.flushes_of(broker)
        living = [f for f in flushes if cells[shape.phase[f]] != Phase.IDLE]
        if living != list(flushes[: len(living)]):
            blocks = {f: [cells[cell] for cell in shape.block(f)] for f in flushes}
            idle = [f for f in flushes if f not in living]
            for target, source in zip(flushes, living + idle, strict=True):
                for cell, value in zip(shape.block(target), blocks[source], strict=True):
                    cells[cell] = value
