"""The protocol's model explored to the end, the planted bugs, and the quotient against the whole space."""

import pytest

from model.bugs import BUGS
from model.cells import Bounds
from model.explore import explore, reachable
from model.step import Rules

WHOLE = {
    "orphaned files": Bounds(brokers=1, partitions=1, pipelines=2),
    "two objects of one flush": Bounds(brokers=1, partitions=2, pipelines=1, orphan_files=0),
    "two flushes of one broker": Bounds(brokers=1, flushes=2, partitions=1, pipelines=1, objects=1, orphan_files=0),
    "two brokers race": Bounds(brokers=2, partitions=1, pipelines=1, objects=1, orphan_files=0),
}
"""Every state by itself: all that anybody remembers is there."""

QUOTIENT = {
    "any number of pipelines": Rules(Bounds(pipelines=0), quotient=True),
    "dead objects are kept": Rules(Bounds(pipelines=0, objects=1), quotient=True, keep_dead=True),
    "two flushes of one broker": Rules(Bounds(brokers=1, flushes=2, pipelines=0), quotient=True),
}
"""Two partitions, and two brokers or two flushes at a time of one."""

LARGE = {
    "two sleeping pipelines": Rules(Bounds(pipelines=2), quotient=True),
    "two flushes of two brokers": Rules(Bounds(flushes=2, partitions=1, pipelines=0), quotient=True),
    "the whole space of two brokers": Rules(Bounds(partitions=1, pipelines=1)),
}


def _holds(rules: Rules) -> None:
    found = explore(rules)
    print(found)
    assert not found.violation, found
    assert found.states > 1_000


@pytest.mark.parametrize("rules", QUOTIENT.values(), ids=QUOTIENT)
def test_the_protocol_holds(rules: Rules) -> None:
    _holds(rules)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rules", LARGE.values(), ids=LARGE)
def test_the_protocol_holds_in_large(rules: Rules) -> None:
    _holds(rules)


@pytest.mark.parametrize("bounds", WHOLE.values(), ids=WHOLE)
def test_the_protocol_holds_state_by_state(bounds: Bounds) -> None:
    _holds(Rules(bounds))


@pytest.mark.parametrize("keep_dead", [False, True])
@pytest.mark.parametrize("bounds", WHOLE.values(), ids=WHOLE)
def test_the_quotient_leaves_nothing_out(bounds: Bounds, keep_dead: bool) -> None:
    quotient = Rules(bounds, quotient=True, keep_dead=keep_dead)
    forms = {quotient.canonical(list(state)) for state in reachable(Rules(bounds))}
    assert len(forms) > 20
    assert forms <= reachable(quotient)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = BUGS[name]
    found = explore(Rules(bug.bounds, frozenset([name])))
    print(found)
    assert found.violation == bug.breaks, found
    assert 1 <= len(found.trace) <= 12


@pytest.mark.parametrize(
    "bounds", sorted({bug.bounds for bug in BUGS.values()} - set(WHOLE.values()), key=repr), ids=repr
)
def test_without_the_bug_the_same_bounds_are_fine(bounds: Bounds) -> None:
    found = explore(Rules(bounds))
    assert not found.violation, found


def test_a_trace_names_everybody_the_same_throughout() -> None:
    bug = BUGS["frontier-moved-back"]
    trace = explore(Rules(bug.bounds, frozenset(["frontier-moved-back"]))).trace
    assert sum("pipeline 0 plans" in line or "pipeline 1 plans" in line for line in trace) == 2
    assert trace[-1] in {f"pipeline {i} writes its own frontier into the table" for i in (0, 1)}
