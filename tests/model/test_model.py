"""The protocol's model explored to the end, the planted bugs, and the quotient against the whole space."""

import pytest

from model.bugs import BUGS
from model.cells import Bounds
from model.explore import explore, reachable
from model.step import Rules

WHOLE = {
    "one flush": Bounds(brokers=1, partitions=1, pipelines=2),
    "two objects of one flush": Bounds(brokers=1, partitions=2, pipelines=1, orphan_files=0),
    "two brokers race": Bounds(brokers=2, partitions=1, pipelines=1, objects=1, orphan_files=0),
}


def test_two_brokers_two_partitions_and_any_number_of_pipelines() -> None:
    found = explore(Rules(Bounds(pipelines=0), quotient=True))
    print(found)
    assert not found.violation, found
    assert found.states > 50_000


@pytest.mark.parametrize("bounds", WHOLE.values(), ids=WHOLE)
def test_whole_spaces(bounds: Bounds) -> None:
    found = explore(Rules(bounds))
    print(found)
    assert not found.violation, found


@pytest.mark.parametrize("bounds", WHOLE.values(), ids=WHOLE)
def test_the_quotient_leaves_nothing_out(bounds: Bounds) -> None:
    quotient = Rules(bounds, quotient=True)
    forms = {quotient.canonical(list(state)) for state in reachable(Rules(bounds))}
    assert len(forms) > 10
    assert forms <= reachable(quotient)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = BUGS[name]
    found = explore(Rules(bug.bounds, frozenset([name])))
    print(found)
    assert found.violation == bug.breaks
    assert 1 <= len(found.trace) <= 12


@pytest.mark.parametrize("bounds", sorted({bug.bounds for bug in BUGS.values()}, key=repr), ids=repr)
def test_without_the_bug_the_same_bounds_are_fine(bounds: Bounds) -> None:
    found = explore(Rules(bounds))
    assert not found.violation, found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("pipelines", [1, 2])
def test_two_brokers_two_partitions_and_pipelines_that_sleep(pipelines: int) -> None:
    found = explore(Rules(Bounds(pipelines=pipelines), quotient=True))
    print(found)
    assert not found.violation, found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_whole_space_of_two_brokers() -> None:
    found = explore(Rules(Bounds(brokers=2, partitions=1, pipelines=1)))
    print(found)
    assert not found.violation, found
