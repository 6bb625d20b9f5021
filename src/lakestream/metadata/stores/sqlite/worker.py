"""How blocking SQLite work leaves the event loop and comes back: connections, transactions, threads."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, Generic, TypeVar

from lakestream.errors import CorruptObject, Unavailable
from lakestream.metadata.stores.sqlite import rows

T = TypeVar("T")
J = TypeVar("J")

LOCK_TIMEOUT_S: Final = 10.0
LOCK_RETRY_S: Final = 0.0005
CACHE_KIB: Final = 16 * 1024
POLL_INTERVAL_S: Final = 0.015

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
        connection.execute("PRAGMA cell_size_check = ON")
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
            if isinstance(error, sqlite3.OperationalError):  # text that is none, say
                raise CorruptObject(f"{path} is damaged: {error}") from error
            raise
        if code in _BUSY:
            raise Unavailable(f"{path} stayed locked for {LOCK_TIMEOUT_S:g} s: nothing was written") from error
        if code == sqlite3.SQLITE_FULL:
            raise Unavailable(f"the disk of {path} is full: nothing was written; free some space") from error
        if code in _DAMAGED:
            raise CorruptObject(f"{path} is damaged or no SQLite database: {error}") from error
        raise Unavailable(f"{path} failed, the outcome is unknown: {error}") from error
    except UnicodeEncodeError:
        raise  # of a key that was given, not read
    except ValueError as error:  # a row that does not read as the one that was written
        raise CorruptObject(f"{path} is damaged: {error}") from error


def _code(error: sqlite3.Error) -> int | None:
    """SQLite's primary error code; None if the error is not SQLite's but a wrong call."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


class Lane(Generic[J]):
    """One thread. Jobs that arrive while it works are given to it together, in order.

    `work` runs on the thread and returns a result for each job; if it raises, every job of the batch
    fails so. While `polling` is set, `idle` is called whenever the thread had nothing to do for a while.
    """

    def __init__(self, name: str, work: Callable[[list[J]], list[Any]], idle: Callable[[], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._work = work
        self._idle = idle
        self._polling = False
        self._queue: SimpleQueue[list[tuple[J, asyncio.Future[Any]]] | None] = SimpleQueue()
        self._arrived: list[tuple[J, asyncio.Future[Any]]] = []
        self._closing = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: J) -> asyncio.Future[Any]:
        if self._closing:
            raise Unavailable("the metadata store is closed")
        future = self._loop.create_future()
        if not self._arrived:
            # Not at once: whatever else this turn of the loop brings goes along.
            self._loop.call_soon(self._hand_over)
        self._arrived.append((job, future))
        return future

    def poll(self, wanted: bool) -> None:
        if wanted and not self._polling:
            self._queue.put([])  # the thread may be waiting without end
        self._polling = wanted

    async def close(self, last: Callable[[], None]) -> None:
        """Refuses new jobs, finishes what is queued, ends the thread and runs `last`. Again: no effect."""
        if self._closing:
            return
        self._closing = True
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(last)

    def _hand_over(self) -> None:
        if self._arrived:
            batch, self._arrived = self._arrived, []
            self._queue.put(batch)

    def _run(self) -> None:
        """The thread."""
        while (batch := self._next()) is not None:
            if not batch:
                if self._idle is not None:
                    self._idle()
                continue
            results: list[Any] = []
            failure: Exception | None = None
            try:
                results = self._work([job for job, _ in batch])
            except Exception as error:  # whatever it is, it belongs to the callers: the thread must go on
                failure = error
            self._loop.call_soon_threadsafe(self._answer, batch, results, failure)

    def _next(self) -> list[tuple[J, asyncio.Future[Any]]] | None:
        """Everything that is queued; empty after a while without anything; None at the end."""
        try:
            batch = self._queue.get(timeout=POLL_INTERVAL_S if self._polling else None)
        except Empty:
            return []
        while batch is not None and not self._queue.empty():
            more = self._queue.get()
            if more is None:
                self._queue.put(None)
                break
            batch += more
        return batch

    def _answer(self, batch: list[tuple[J, asyncio.Future[Any]]], results: list[Any], error: Exception | None) -> None:
        for index, (_, future) in enumerate(batch):
            if future.done():  # the caller was cancelled
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(results[index])
