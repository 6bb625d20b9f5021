"""Frontier: plan and write a file, commit it with the frontier, advance the heads; orphaned files.

A pipeline remembers nothing but the file whose commit it may still try, so it is that file. A look at heads and extents
that is older than the view only finds fewer records: a plan may end anywhere. Advancing a head is idempotent and open
to every pipeline at any time, to any frontier that some view has shown.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from .cells import Shape, State
from .changes import clear_file, drop_extents
from .step import FAIR, FAULT, Rules, Step, head_changed


def steps(rules: Rules, state: State) -> Iterator[Step]:
    shape = rules.shape
    yield from _write(shape, state)
    for i in shape.files:
        if _exists(shape, state, i):
            yield from _commit(rules, state, i)
            yield from _abandon(shape, state, i)
            yield from _condemn(rules, state, i)
    for p in shape.partitions:
        yield from _advance(rules, state, p)
    for i in shape.orphans if "orphans-never-reaped" not in rules.bugs else ():
        yield from _reap(rules, state, i)


def _write(shape: Shape, state: State) -> Iterator[Step]:
    free = next((i for i in shape.files if not _exists(shape, state, i)), None)
    if free is None and shape.files:
        return
    starts = [state[cell] for cell in shape.table_frontier]
    choices = [range(start, shape.next_offset(state, p) + 1) for p, start in enumerate(starts)]
    for ends in product(*choices):
        parts = [p for p in shape.partitions if ends[p] > starts[p]]
        if not parts:
            continue
        cells = list(state)
        for p in parts:
            if free is None:
                cells[shape.table_frontier[p]] = ends[p]
            else:
                cells[shape.start[free][p]], cells[shape.end[free][p]] = starts[p], ends[p]
        done = "commits it" if free is None else "writes a file"
        who = () if free is None else (free,)
        yield Step(f"pipeline{' {0}' if who else ''} plans {starts} to {list(ends)} and {done}", who, cells, FAIR)


def _commit(rules: Rules, state: State, i: int) -> Iterator[Step]:
    """Whether the worker hears of it makes no difference: the next tick reads the table."""
    shape = rules.shape
    parts = [p for p in shape.partitions if state[shape.end[i][p]]]
    if fits(shape, state, i):
        if any(state[shape.start[i][p]] != state[shape.table_frontier[p]] for p in parts):
            cells = list(state)
            clear_file(shape, cells, i)
            yield Step("pipeline {0} cannot replace what the table has by now and discards its file", (i,), cells, FAIR)
        step = _committed(shape, state, i, parts)
        if "advance-only-by-the-committer" in rules.bugs:
            yield step._replace(text=step.text + ", and crashes before it advances the heads", kind=FAULT)
            step = step._replace(cells=list(step.cells), text=step.text + " and advances the heads")
            for p in parts:
                _move_head(rules, step.cells, p, step.cells[shape.table_frontier[p]])
        yield step
        if "file-deleted-after-unknown-outcome" in rules.bugs:
            step = _committed(shape, state, i, parts)
            text = step.text + ", its reply is lost, the pipeline deletes the file"
            yield step._replace(text=text, kind=FAULT, problem="a file is deleted that the table names")
        return
    if "no-compare-of-the-frontier" in rules.bugs:
        yield _committed(shape, state, i, parts)
    if "frontier-moved-back" in rules.bugs:
        cells = list(state)
        for p in parts:
            cells[shape.table_frontier[p]] = state[shape.end[i][p]]
        clear_file(shape, cells, i)
        yield Step("pipeline {0} writes its own frontier into the table", (i,), cells, FAIR)
    cells = list(state)
    clear_file(shape, cells, i)
    yield Step("pipeline {0} finds the table moved on and discards its file", (i,), cells, FAIR)


def _committed(shape: Shape, state: State, i: int, parts: Sequence[int]) -> Step:
    cells = list(state)
    problem = "a file is committed that a collector condemned" if cells[shape.condemned[i]] else ""
    if not fits(shape, state, i):
        problem = "rows are in the table twice, or are missing below its frontier"
    for p in parts:
        cells[shape.table_frontier[p]] = max(state[shape.end[i][p]], state[shape.table_frontier[p]])
    clear_file(shape, cells, i)
    reached = [cells[cell] for cell in shape.table_frontier]
    return Step("pipeline {0} commits its file: table frontier " + str(reached), (i,), cells, FAIR, problem)


def _abandon(shape: Shape, state: State, i: int) -> Iterator[Step]:
    """A crash, or a commit that never landed and whose outcome nobody knows: the file stays behind."""
    free = next((j for j in shape.orphans if not any(state[cell] for cell in shape.orphan[j])), None)
    if free is None:
        return
    cells = list(state)
    for p in shape.partitions:
        if state[shape.end[i][p]]:
            cells[shape.orphan[free][p]] = state[shape.end[i][p]]
    clear_file(shape, cells, i)
    yield Step("pipeline {0} crashes, its file stays", (i,), cells, FAULT)


def _advance(rules: Rules, state: State, p: int) -> Iterator[Step]:
    if "advance-only-by-the-committer" in rules.bugs:
        return
    shape = rules.shape
    present, last = state[shape.head_frontier[p]], state[shape.table_frontier[p]]
    if "extents-dropped-before-the-table-commit" in rules.bugs:
        last = max([last, *(state[shape.end[i][p]] for i in shape.files)])
    first = 0 if "head-frontier-moved-back" in rules.bugs else present + 1
    for frontier in range(first, last + 1):
        if frontier != present:
            cells = list(state)
            _move_head(rules, cells, p, frontier)
            yield Step("the frontier of partition {0} advances to {1}, extents below it go", (p, frontier), cells, FAIR)


def _move_head(rules: Rules, cells: list[int], p: int, frontier: int) -> None:
    cells[rules.shape.head_frontier[p]] = frontier
    drop_extents(rules.shape, cells, p, frontier + (1 if "range-delete-off-by-one" in rules.bugs else 0))
    head_changed(rules, cells, p)


def _condemn(rules: Rules, state: State, i: int) -> Iterator[Step]:
    """List, then names and frontier of one metadata, then the delete: here the judgement, which is final."""
    if state[rules.shape.condemned[i]]:
        return
    ends = {p: state[cell] for p, cell in enumerate(rules.shape.end[i]) if state[cell]}
    begun = any(state[rules.shape.start[i][p]] < state[rules.shape.table_frontier[p]] for p in ends)
    if _dead(rules, state, ends) or (begun and "orphan-judged-by-its-start" in rules.bugs):
        cells = list(state)
        cells[rules.shape.condemned[i]] = 1
        yield Step("a collector condemns the file of pipeline {0}", (i,), cells, FAIR)


def _reap(rules: Rules, state: State, i: int) -> Iterator[Step]:
    shape = rules.shape
    ends = {p: state[cell] for p, cell in enumerate(shape.orphan[i]) if state[cell]}
    if ends and _dead(rules, state, ends):
        cells = list(state)
        for cell in shape.orphan[i]:
            cells[cell] = 0
        yield Step("a collector deletes an orphaned file", (), cells, FAIR)


def _dead(rules: Rules, state: State, ends: dict[int, int]) -> bool:
    """The name carries the end of one partition's range; of which one is left open."""
    frontiers = rules.shape.table_frontier
    if "orphan-judged-by-age" in rules.bugs:
        return True
    if "orphan-reaped-at-the-frontier" in rules.bugs:
        return any(end - 1 <= state[frontiers[p]] for p, end in ends.items())
    return any(end <= state[frontiers[p]] for p, end in ends.items())


def fits(shape: Shape, state: Sequence[int], i: int) -> bool:
    """Whether the file may be committed: of each of its ranges some is left to do. What the table has of them by now
    gives way to it; that those are the same rows is for the code to make sure of, not for this model."""
    parts = [p for p in shape.partitions if state[shape.end[i][p]]]
    return all(state[shape.start[i][p]] <= state[shape.table_frontier[p]] < state[shape.end[i][p]] for p in parts)


def _exists(shape: Shape, state: State, i: int) -> bool:
    return any(state[cell] for cell in shape.end[i])
