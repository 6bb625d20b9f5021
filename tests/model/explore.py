"""Breadth-first search over all reachable states, up to symmetry."""

import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from . import append, collect, frontier
from .cells import State
from .invariants import at_rest, broken, fallen
from .step import FAIR, Rules, Step

_FORMS_KEPT = 500_000
"""Most states are reached many times, often by steps that commute: their normal form is looked up."""


@dataclass(frozen=True, slots=True)
class Explored:
    """`violation` is empty if every invariant holds and every state can come to rest; `trace` leads to it."""

    states: int
    transitions: int
    depth: int
    seconds: float
    at_rest: int
    violation: str = ""
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        figures = (
            f"{self.states:,} states, {self.transitions:,} transitions, depth {self.depth}, "
            f"{self.at_rest:,} states at rest, {self.seconds:.1f} s of CPU"
        )
        if not self.violation:
            return f"{figures}: every invariant holds, every state comes to rest"
        steps = "\n".join(f"  {number:2}. {line}" for number, line in enumerate(self.trace, 1))
        return f"{figures}: VIOLATION: {self.violation}\n{steps}"


def steps(rules: Rules, state: State) -> Iterator[Step]:
    yield from append.steps(rules, state)
    yield from frontier.steps(rules, state)
    yield from collect.steps(rules, state)


def explore(rules: Rules, *, liveness: bool = True) -> Explored:
    """To the end, or to the first violation: no trace to one is shorter."""
    began = time.process_time()
    shape = rules.shape
    canonical = rules.canonical
    first = canonical(list(shape.initial()))
    known = {first: 0}
    order = [first]
    forms: dict[bytes, bytes] = {}
    parents = array("I", [0])
    depths = array("H", [0])
    fair_from = array("I", [0])
    fair_to = array("I")
    transitions = 0
    resting: list[int] = []

    def explored(violation: str = "", trace: tuple[str, ...] = ()) -> Explored:
        seconds = time.process_time() - began
        return Explored(len(order), transitions, depths[-1], seconds, len(resting), violation, trace)

    number = 0
    while number < len(order):
        state = tuple(order[number])
        if at_rest(rules, state):
            resting.append(number)
        for step in steps(rules, state):
            transitions += 1
            problem = step.problem or fallen(rules, state, step.cells)
            raw = bytes(step.cells)
            found = forms.get(raw)
            if found is None:
                found = canonical(step.cells)
                if len(forms) >= _FORMS_KEPT:
                    forms.clear()
                forms[raw] = found
            there = known.get(found)
            if there is None:
                there = known[found] = len(order)
                order.append(found)
                parents.append(number)
                depths.append(depths[number] + 1)
                problem = problem or broken(rules, found)
            if problem:
                return explored(problem, _trace(rules, [*_path(order, parents, number), found]))
            if liveness and step.kind == FAIR:
                fair_to.append(there)
        fair_from.append(len(fair_to))
        number += 1
    if liveness and (stuck := _first_stuck(fair_from, fair_to, resting)) is not None:
        trace = _trace(rules, _path(order, parents, stuck))
        return explored("something is never moved to the table, or never goes away", trace)
    return explored()


def reachable(rules: Rules) -> frozenset[bytes]:
    first = rules.canonical(list(rules.shape.initial()))
    known = {first}
    order = [first]
    for found in order:
        fresh = {rules.canonical(step.cells) for step in steps(rules, tuple(found))} - known
        known |= fresh
        order += fresh
    return frozenset(known)


def _first_stuck(fair_from: "array[int]", fair_to: "array[int]", resting: list[int]) -> int | None:
    """The first state from which no state at rest can be reached by fair steps. In a finite graph, a run in which
    steps that stay possible are taken in the end gets, from anywhere else, to rest."""
    states = len(fair_from) - 1
    into_from = array("I", bytes(4 * (states + 1)))
    for there in fair_to:
        into_from[there + 1] += 1
    for number in range(states):
        into_from[number + 1] += into_from[number]
    into = array("I", bytes(4 * len(fair_to)))
    filled = array("I", into_from)
    for number in range(states):
        for edge in range(fair_from[number], fair_from[number + 1]):
            there = fair_to[edge]
            into[filled[there]] = number
            filled[there] += 1
    rests = bytearray(states)
    for number in resting:
        rests[number] = 1
    queue = list(resting)
    while queue:
        number = queue.pop()
        for edge in range(into_from[number], into_from[number + 1]):
            before = into[edge]
            if not rests[before]:
                rests[before] = 1
                queue.append(before)
    stuck = rests.find(0)
    return None if stuck < 0 else stuck


def _path(order: list[bytes], parents: "array[int]", number: int) -> list[bytes]:
    path = [order[number]]
    while number:
        number = parents[number]
        path.append(order[number])
    return path[::-1]


def _trace(rules: Rules, path: list[bytes]) -> tuple[str, ...]:
    """The same run, told without renaming anybody on the way."""
    state = tuple(path[0])
    told = []
    for target in path[1:]:
        for step in steps(rules, state):
            renumbered = list(step.cells)
            if rules.canonical(renumbered) == target:
                told.append(str(step))
                state = tuple(renumbered)
                break
        else:
            raise AssertionError("a symmetry of the states is none of the steps")
    return tuple(told)
