"""Where planted bugs are entered."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from simulator.policies import KEPT

Plant = Callable[[], AbstractContextManager[None]]
BUGS: Final[dict[str, Plant]] = {}
_UPKEEP: Final[set[str]] = set()


def bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """Enters a bug under its function's name; its docstring says which rule it breaks."""
    BUGS[_name(plant)] = contextmanager(plant)
    return plant


def upkeep_bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """One that shows only where somebody looks after the table."""
    _UPKEEP.add(_name(plant))
    return bug(plant)


def seeds_for(name: str, count: int) -> range:
    """The first so many seeds of histories in which the bug can show."""
    step = KEPT[0] if name in _UPKEEP else 1
    return range(step, step * count + 1, step)


def _name(plant: Callable[[], Iterator[None]]) -> str:
    return plant.__name__.replace("_", "-")
