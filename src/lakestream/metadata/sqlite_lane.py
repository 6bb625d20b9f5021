"""A thread that does what queued up together: how blocking work leaves the event loop and comes back."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from lakestream.errors import Unavailable

T = TypeVar("T")
J = TypeVar("J")


class Lane(Generic[J]):
    """One thread. Jobs that arrive while it works are given to it together, in order.

    `work` runs on the thread and returns a result for each job; if it raises, every job of the batch fails so.
    """

    def __init__(self, name: str, work: Callable[[list[J]], list[Any]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._work = work
        self._queue: list[tuple[J, asyncio.Future[Any]]] = []
        self._busy = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def busy(self) -> bool:
        return self._busy

    def submit(self, job: J) -> asyncio.Future[Any]:
        if self._drained is not None:
            raise Unavailable("the metadata store is closed")
        future = self._loop.create_future()
        self._queue.append((job, future))
        if not self._busy:
            # Not at once: whatever else this turn of the loop brings goes along.
            self._busy = True
            self._loop.call_soon(self._start)
        return future

    async def run(self, work: Callable[[], T]) -> T:
        """Runs something else on the thread."""
        return await self._loop.run_in_executor(self._pool, work)

    async def close(self, last: Callable[[], None]) -> None:
        """Refuses new jobs, finishes what is queued, runs `last` and ends the thread. Again: no effect."""
        if self._drained is not None:
            return
        self._drained = self._loop.create_future()
        if not self._busy:
            self._drained.set_result(None)
        await self._drained
        await self.run(last)
        self._pool.shutdown()

    def _start(self) -> None:
        batch, self._queue = self._queue, []
        done = self._pool.submit(self._work, [job for job, _ in batch])
        done.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._finish, batch, done))

    def _finish(self, batch: list[tuple[J, asyncio.Future[Any]]], done: Future[list[Any]]) -> None:
        if self._queue:
            self._start()
        else:
            self._busy = False
            if self._drained is not None:
                self._drained.set_result(None)
        error = done.exception()
        results = [None] * len(batch) if error is not None else done.result()
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():  # the caller was cancelled
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
