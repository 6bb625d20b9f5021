"""An event loop whose time is made up: it jumps to the next timer when nothing else is to do."""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn


class Stuck(Exception):
    """Every task waits and no timer is set: nothing can ever happen again."""


class _Jump:
    """Stands in for the selector: instead of waiting, time passes."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stuck("every task waits for another")
        self._loop.now_s += timeout
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """Deterministic: callbacks run in the order they became ready, timers in the order of their time. No threads, no
    sockets."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self._selector = _Jump(self)

    def time(self) -> float:
        return self.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:
        raise AssertionError(f"{func} would leave the simulation through a thread")

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody needs to be woken."""
