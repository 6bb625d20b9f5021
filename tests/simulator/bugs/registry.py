"""Where planted bugs are entered."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

Plant = Callable[[], AbstractContextManager[None]]
BUGS: Final[dict[str, Plant]] = {}


def bug(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """Enters a bug under its function's name; its docstring says which rule it breaks."""
    BUGS[plant.__name__.replace("_", "-")] = contextmanager(plant)
    return plant
