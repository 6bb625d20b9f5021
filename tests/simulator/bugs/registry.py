"""Where planted bugs are entered."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import lcm
from typing import Any, Final
from unittest.mock import patch

from simulator.disks import DISKS
from simulator.freshener import DOORS
from simulator.inserting import INSERTS
from simulator.losses import LOSSES
from simulator.oxia_store import ON_OXIA
from simulator.policies import KEPT
from simulator.scene import AS_DRAWN, Stage
from simulator.transactions import TRANSACTIONS
from simulator.typed import TYPED

Plant = Callable[[], AbstractContextManager[None]]
Bug = Callable[[], Iterator[None]]
BUGS: Final[dict[str, Plant]] = {}
_SHOWN_IN: Final[dict[str, tuple[int, int]]] = {}
"""Bug → in every so many histories, those with this remainder, it can show. Of the others: in all."""
_ON_OXIA: Final[set[str]] = set()
_STAGES: Final[dict[str, Stage]] = {}


def bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """Enters a bug under its function's name; its docstring says which rule it breaks."""
    BUGS[_name(plant)] = contextmanager(plant)
    return plant


def upkeep_bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """One that shows only where somebody looks after the table."""
    _SHOWN_IN[_name(plant)] = KEPT
    return bug(plant)


def loss_bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """One that shows only where the metadata store is lost."""
    _SHOWN_IN[_name(plant)] = LOSSES
    return bug(plant)


def door_bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """One that shows only where engines load the table."""
    _SHOWN_IN[_name(plant)] = DOORS
    return bug(plant)


def disk_bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """One that shows only where there are disk stores."""
    _SHOWN_IN[_name(plant)] = DISKS
    return bug(plant)


def insert_bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """One that shows only where an engine inserts rows."""
    _SHOWN_IN[_name(plant)] = INSERTS
    return bug(plant)


def insert_loss_bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """One that shows only where an engine inserts rows and the metadata store is lost."""
    _SHOWN_IN[_name(plant)] = both(INSERTS, LOSSES)
    return bug(plant)


def typed_bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """One that shows only where the topic is typed."""
    _SHOWN_IN[_name(plant)] = TYPED
    return bug(plant)


def transaction_bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """One that shows only where producers send transactions."""
    _SHOWN_IN[_name(plant)] = TRANSACTIONS
    return bug(plant)


def staged(stage: Stage) -> Callable[[Bug], Bug]:
    """One that shows by a rare coincidence: it is looked for in histories that are about that."""

    def enter(plant: Bug) -> Bug:
        _STAGES[_name(plant)] = stage
        return plant

    return enter


def stage_of(name: str) -> Stage:
    """On which its histories are played. The empty name: none is planted."""
    return _STAGES.get(name, AS_DRAWN)


def swapped(owner: Any, real: Callable[..., Any], planted: Any) -> AbstractContextManager[Any]:
    """`planted` where `owner`, a class or a module, has `real`: a public name, given by reference. What is renamed or
    moved away breaks the bug at once instead of leaving it without effect."""
    name = real.__name__
    if name.startswith("_") and not name.endswith("__"):
        raise ValueError(f"{name} is private to {owner.__name__}: break it at a public seam")
    if getattr(owner, name) is not real:
        raise ValueError(f"{owner.__name__} does not use this {name}")
    return patch.object(owner, name, planted)


def oxia_bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """One that shows only where metadata is on Oxia."""
    _ON_OXIA.add(_name(plant))
    return bug(plant)


def seeds_for(name: str, count: int) -> range:
    """The first so many seeds of histories in which the bug can show."""
    if name in _ON_OXIA:
        return range(ON_OXIA, ON_OXIA + count)
    step, remainder = _SHOWN_IN.get(name, (1, 0))
    first = remainder or step
    return range(first, first + step * count, step)


def both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """In every so many histories, with which remainder, both are."""
    step = lcm(one[0], other[0])
    [remainder] = (seed for seed in range(step) if seed % one[0] == one[1] and seed % other[0] == other[1])
    return step, remainder


def _name(plant: Callable[[], Iterator[None]]) -> str:
    return plant.__name__.replace("_", "-")
