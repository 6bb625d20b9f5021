"""The one thread on which everything of Spark that blocks is called."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class OneThread:
    """Calls run one after the other. The thread is a daemon: a process that must stop does not wait for a call that
    hangs in a dying JVM."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def call(self, work: Callable[[], T]) -> T:
        """The result of work(), or what it raised. If the caller is cancelled, work() still runs to its end."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(set_outcome: Callable[[Any], None], outcome: object) -> None:
            if not done.done():
                set_outcome(outcome)

        def run() -> None:
            try:
                result = work()
            except BaseException as error:
                _post(loop, settle, done.set_exception, error)
            else:
                _post(loop, settle, done.set_result, result)

        self._calls.put(run)
        return await done

    def _work(self) -> None:
        while True:
            self._calls.get()()


def _post(loop: asyncio.AbstractEventLoop, *call: Any) -> None:
    """A loop that is closed has nobody left to tell."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(*call)
