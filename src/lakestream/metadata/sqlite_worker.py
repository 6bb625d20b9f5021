"""How blocking SQLite work leaves the event loop and comes back: connections, transactions, threads."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from lakestream.errors import CorruptObject, Unavailable
from lakestream.metadata import sqlite_rows as rows

T = TypeVar("T")
J = TypeVar("J")

LOCK_TIMEOUT_S: Final = 10.0
LOCK_RETRY_S: Final = 0.0005
CACHE_KIB: Final = 16 * 1024

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def connect(path: str) -> sqlite3.Connection:
    """A connection without implicit transactions, whose commits survive a power cut.

    Any thread may use it, one at a time. The tables are created if the file is new.
    """
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0, cached_statements=256)
    ready = False
    try:
        retry_while_locked(lambda: connection.execute("PRAGMA journal_mode = WAL"))
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        with transaction(connection):
            rows.prepare(connection, path)
        ready = True
    finally:
        if not ready:
            connection.close()
    return connection


def retry_while_locked(attempt: Callable[[], T]) -> T:
    """SQLite's own busy handler backs off to 100 ms and starves the unlucky process; this one does not."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if _code(error) not in _BUSY or time.monotonic() > deadline:
                raise
        time.sleep(LOCK_RETRY_S)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. Waiting for the lock of another process happens here, before anything is read."""
    retry_while_locked(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def decided_errors(path: str) -> Iterator[None]:
    """Tells SQLite's errors in the store's words."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = _code(error)
        if code is None:
            raise
        if code in _BUSY:
            raise Unavailable(f"{path} stayed locked for {LOCK_TIMEOUT_S:g} s: nothing was written") from error
        if code == sqlite3.SQLITE_FULL:
            raise Unavailable(f"the disk of {path} is full: nothing was written; free some space") from error
        if code in _DAMAGED:
            raise CorruptObject(f"{path} is damaged or no SQLite database: {error}") from error
        raise Unavailable(f"{path} failed, the outcome is unknown: {error}") from error


def _code(error: sqlite3.Error) -> int | None:
    """SQLite's primary error code; None if the error is not SQLite's but a wrong call."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


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
