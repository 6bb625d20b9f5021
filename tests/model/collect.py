"""Collect: raise the generation, raise fences, read the extents, delete the object.

Collectors remember only what they have read of one object. Raising a fence is idempotent and monotone and belongs to
nobody; a collector that slept raises it to a generation long past. No age is waited for: grace is courtesy to readers.
"""

from collections.abc import Iterator

from .cells import Shape, State
from .changes import names, remove_object
from .step import FAIR, Rules, Step, head_changed


def steps(rules: Rules, state: State) -> Iterator[Step]:
    shape = rules.shape
    used = shape.generations_in_use(state)
    if "generation-never-raised" not in rules.bugs and state[shape.generation] in _old(shape, state):
        cells = list(state)
        cells[shape.generation] += 1
        yield Step("the generation is raised to {0}", (cells[shape.generation],), cells, FAIR)
    for p in shape.partitions:
        for fence in used:
            if fence > state[shape.fence[p]]:
                cells = list(state)
                cells[shape.fence[p]] = fence
                head_changed(rules, cells, p)
                yield Step("a collector raises the fence of partition {0} to {1}", (p, fence), cells, FAIR)
    for f in shape.flushes:
        for k in shape.objects:
            if state[shape.object[f][k]]:
                yield from _examine(rules, state, f, k)


def _old(shape: Shape, state: State) -> set[int]:
    """Generations of objects and flushes: above all of them, raising the generation again changes nothing."""
    objects = {state[cell] for flush in shape.object for cell in flush}
    return objects | {state[cell] for cell in shape.stamp}


def _examine(rules: Rules, state: State, f: int, k: int) -> Iterator[Step]:
    shape = rules.shape
    sections = shape.section[f][k]
    parts = [p for p in shape.partitions if state[sections[p]]]
    unread = [p for p in parts if state[sections[p]] == 1]
    fenced = all(state[shape.object[f][k]] < state[shape.fence[p]] for p in parts)
    past = state[shape.object[f][k]] < state[shape.generation]
    if "collected-without-fence" in rules.bugs:
        fenced = past
    at = (f, k)
    if fenced or (past and "extents-read-before-the-fence" in rules.bugs):
        begun = any(
            state[cell] == 2
            for g in shape.flushes
            for each in shape.objects
            if (g, each) != at
            for cell in shape.section[g][each]
        )
        for p in unread:
            if not begun and not names(shape, state, f, k, p):
                cells = list(state)
                cells[sections[p]] = 2
                yield Step(
                    "a collector finds no extent of partition {2} that names object {1} of flush {0}",
                    (*at, p),
                    cells,
                    FAIR,
                )
    if len(unread) < len(parts):
        cells = list(state)
        for p in parts:
            cells[sections[p]] = 1
        yield Step("the collector leaves object {1} of flush {0}", at, cells, FAIR)
    if rules.quotient:
        # Readings are forgotten there: all of them and the delete are one step.
        unread = [p for p in parts if names(shape, state, f, k, p)]
    enough = len(unread) < len(parts) if "one-partition-read" in rules.bugs else not unread
    if enough and fenced:
        cells = list(state)
        problem = remove_object(shape, cells, f, k)
        yield Step("a collector deletes object {1} of flush {0}", at, cells, FAIR, problem)
