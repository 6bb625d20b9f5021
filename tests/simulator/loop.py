"""An event loop whose time is made up: it jumps to the next timer when nothing else is to do.

Written for speed, as every microsecond here is paid some thousand times a history: an event is a list that the heap
compares without running Python, and nothing is checked that only a loop with threads, sockets or a debug mode needs.
"""

import asyncio
from _asyncio import Future
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any, NoReturn

START_S = 1_000.0


class Stuck(Exception):
    """Every task waits and no timer is set: nothing can ever happen again."""


class Event(list[Any]):
    """[when, number, context, callback, arguments]. Numbers are unique, so a comparison never goes past them."""

    __slots__ = ()

    def cancel(self) -> None:
        self[3] = None

    def cancelled(self) -> bool:
        return self[3] is None

    def when(self) -> float:
        when: float = self[0]
        return when


class SimulatedLoop(asyncio.BaseEventLoop):
    """Deterministic: callbacks run in the order they became ready, timers in the order of their time and, at the same
    time, in the order they were set. No threads, no sockets."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = START_S
        self._soon: deque[tuple[Context, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._timers: list[Event] = []
        self._numbers = 0

    def time(self) -> float:
        return self.now_s

    get_debug = staticmethod(bool)  # type: ignore[assignment]
    """Always False; futures ask often, and calling a type costs less than calling a function."""

    def create_future(self) -> "asyncio.Future[Any]":
        return Future(loop=self)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> None:  # type: ignore[override]
        """Not to be cancelled: nobody under test does."""
        self._soon.append((context or copy_context(), callback, args))

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Event:
        self._numbers += 1
        event = Event((self.now_s + delay, self._numbers, context or copy_context(), callback, args))
        heappush(self._timers, event)
        return event

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Event:
        self._numbers += 1
        event = Event((when, self._numbers, context or copy_context(), callback, args))
        heappush(self._timers, event)
        return event

    def hurry(self, event: Event, delay_s: float) -> Event:
        """The same event at another time."""
        _, _, context, callback, args = event
        event.cancel()
        return self.call_later(delay_s, callback, *args, context=context)

    def forget(self) -> None:
        """What has not happened yet never will."""
        self._soon.clear()
        self._timers.clear()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:
        raise AssertionError(f"{func} would leave the simulation through a thread")

    def _run_once(self) -> None:
        """Everything until somebody has stopped the loop and nothing more is ready."""
        soon, timers = self._soon, self._timers
        take = soon.popleft
        while True:
            try:
                while soon:
                    context, callback, args = take()
                    context.run(callback, *args)
                if self._stopping:  # type: ignore[attr-defined]
                    return
                if not timers:
                    raise Stuck("every task waits for another")
                when, _, context, callback, args = heappop(timers)
                if callback is not None:
                    if when > self.now_s:
                        self.now_s = when
                    context.run(callback, *args)
            except Stuck:
                raise
            except Exception as error:
                self.call_exception_handler({"message": f"{callback} failed", "exception": error})

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody needs to be woken."""
