"""One step of one actor, and what all actors share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .cells import Bounds, Shape, State, Status
from .changes import settle
from .normal import normal


class Step(NamedTuple):
    """`text` is formatted with `at` only when a trace is shown. `kind`: what liveness may count on. `problem`: a wrong
    that the step itself does and that the next state would not show any more."""

    text: str
    at: tuple[int, ...]
    cells: list[int]
    kind: str
    problem: str = ""

    def __str__(self) -> str:
        return self.text.format(*self.at)


FAIR = "fair"
"""Happens in the end if it stays possible: an actor's own work."""
CLIENT = "client"
"""A producer's wish; may never come."""
FAULT = "fault"


@dataclass(frozen=True)
class Rules:
    """The protocol within bounds; `bugs` are the planted ones."""

    bounds: Bounds
    bugs: frozenset[str] = frozenset()
    quotient: bool = False
    keep_dead: bool = False
    """In the quotient, objects stay until a collector deletes them."""
    shape: Shape = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", Shape(self.bounds))

    def canonical(self, cells: list[int]) -> bytes:
        """Changes the cells: afterwards they are the state, in its own names."""
        if self.quotient:
            normal(self.shape, cells, keep_dead=self.keep_dead)
        return self.shape.canonical(cells)


Actions = Callable[[Rules, State], Iterator[Step]]


def head_changed(rules: Rules, cells: list[int], partition: int) -> None:
    """The head has a new version: no request made for the old one can land any more."""
    if "no-compare-of-the-head" in rules.bugs:
        return
    shape = rules.shape
    for f in shape.flushes:
        status = shape.status[f][partition]
        if cells[status] == Status.IN_FLIGHT:
            cells[status] = Status.UNKNOWN
        elif cells[status] == Status.ORPHANED:
            cells[status] = Status.FAILED
            settle(shape, cells, f)
