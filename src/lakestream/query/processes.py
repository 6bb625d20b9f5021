"""The processes in which queries run: some of them, each for one query at a time, watched from outside.

A query that is late or that nobody waits for any more is asked to stop, and its process ended if it does not. One that
takes too much memory is ended at once. A process that ended is replaced behind the next query.
"""

import asyncio
import logging
import pickle
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec
import psutil

from lakestream.errors import LakestreamError, Overloaded, QueryLimit, Unavailable
from lakestream.query.messages import LENGTH_BYTES, REPLIES, Reply, Request
from lakestream.query.settings import QuerySettings

_log = logging.getLogger(__name__)

_START_S: Final = 120.0
"""On a machine that is busy with much else."""
_STOP_S: Final = 1.0
"""Between being asked to stop and being ended."""
_LOOK_S: Final = 0.1
_RETIRED_SHARE: Final = 2
"""A process that keeps more than one part in so many of what it may take, with nothing to do, is replaced."""


class QueryProcess:
    def __init__(self, process: asyncio.subprocess.Process, most_bytes: int) -> None:
        self._process = process
        self._most_bytes = most_bytes
        self._watched = psutil.Process(process.pid)
        self.is_usable = True

    @classmethod
    async def start(cls, most_bytes: int) -> "QueryProcess":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "lakestream.query.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # A session of its own: who interrupts the door at a terminal does not mean a query.
            start_new_session=True,
        )
        started = cls(process, most_bytes)
        try:
            async with asyncio.timeout(_START_S):
                await started._receive()
        except BaseException:
            await started.end()
            raise
        return started

    async def ask(self, request: Request) -> Reply:
        """Raises `QueryLimit` if the process took too much, `Unavailable` if it ended. Who is cancelled leaves one that
        has stopped, or ended."""
        body = pickle.dumps(request)
        watch = asyncio.create_task(self._watch())
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
            await self._process.stdin.drain()
            return await self._receive()
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._stop()))
            raise
        except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError) as error:
            await self.end()
            if watch.done() and not watch.cancelled():
                raise QueryLimit(
                    f"the query's process took more than {self._most_bytes >> 20} MiB: read fewer columns or rows"
                ) from error
            raise Unavailable(f"the query's process ended, {self._process.returncode}: ask again") from error
        finally:
            watch.cancel()

    @property
    def size_bytes(self) -> int:
        try:
            return int(self._watched.memory_info().rss)
        except psutil.Error:
            return 0

    async def end(self) -> None:
        self.is_usable = False
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _stop(self) -> None:
        """What it answers then is nobody's."""
        self.is_usable = False
        try:
            self._process.send_signal(signal.SIGINT)
            async with asyncio.timeout(_STOP_S):
                await self._receive()
            self.is_usable = True
        except (OSError, TimeoutError, asyncio.IncompleteReadError, msgspec.DecodeError):
            await self.end()

    async def _receive(self) -> Reply:
        assert self._process.stdout is not None
        head = await self._process.stdout.readexactly(LENGTH_BYTES)
        reply: Reply = REPLIES.decode(await self._process.stdout.readexactly(int.from_bytes(head, "big")))
        return reply

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if self.size_bytes > self._most_bytes:
                break
        self.is_usable = False
        with suppress(ProcessLookupError):
            self._process.kill()


class QueryProcesses:
    """They come up when they are needed first. `running`, `waiting` and `ended` are for whoever counts."""

    def __init__(self, settings: QuerySettings) -> None:
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.workers)
        self._idle: list[QueryProcess] = []
        self._starting: set[asyncio.Task[None]] = set()
        self.running = 0
        self.waiting = 0
        self.ended = 0

    async def close(self) -> None:
        for task in self._starting:
            task.cancel()
        if self._starting:
            await asyncio.wait(self._starting)
        await asyncio.gather(*(process.end() for process in self._idle))
        self._idle.clear()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[QueryProcess]:
        """A process for one query. Raises `Overloaded` if none is free in time."""
        await self._turn()
        try:
            process = await self._taken()
            self.running += 1
            try:
                yield process
            finally:
                self.running -= 1
                await self._give_back(process)
        finally:
            self._turns.release()

    async def _turn(self) -> None:
        settings = self._settings
        if self._turns.locked() and self.waiting >= settings.waiting:
            raise Overloaded(f"{self.waiting} queries wait for their turn: ask again later")
        self.waiting += 1
        try:
            async with asyncio.timeout(settings.wait_ms / 1000):
                await self._turns.acquire()
        except TimeoutError:
            raise Overloaded(f"no query ended within {settings.wait_ms} ms: ask again later") from None
        finally:
            self.waiting -= 1

    async def _taken(self) -> QueryProcess:
        while not self._idle:
            if not self._starting:
                self._replace()
            done, _ = await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED)
            failed = next((task.exception() for task in done if not task.cancelled() and task.exception()), None)
            if failed is not None and not self._idle:
                raise Unavailable(f"no process for queries could be started: {failed}") from failed
        return self._idle.pop()

    async def _give_back(self, process: QueryProcess) -> None:
        if process.is_usable and process.size_bytes <= self._settings.process_bytes // _RETIRED_SHARE:
            self._idle.append(process)
            return
        self.ended += 1
        self._replace()
        await asyncio.shield(asyncio.ensure_future(process.end()))

    def _replace(self) -> None:
        task = asyncio.create_task(self._start(), name="start a process for queries")
        self._starting.add(task)
        task.add_done_callback(self._started)

    async def _start(self) -> None:
        self._idle.append(await QueryProcess.start(self._settings.process_bytes))

    def _started(self, task: "asyncio.Task[None]") -> None:
        self._starting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.warning("a process for queries could not be started: %s", task.exception())


def raise_failure(kind: str, message: str) -> None:
    """What a process says went wrong, as the error that it named."""
    known = {each.__name__: each for each in _subclasses(LakestreamError)}
    raise known.get(kind, Unavailable)(message)


def _subclasses(kind: type[LakestreamError]) -> list[type[LakestreamError]]:
    return [kind, *(each for sub in kind.__subclasses__() for each in _subclasses(sub))]
