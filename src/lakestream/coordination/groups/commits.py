"""Offset commits of one group, written in order and together: while one write is under way, the next gathers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from lakestream.errors import LakestreamError
from lakestream.metadata.groups import CommittedOffset, GroupRows, PendingOffsets, StaleGeneration
from lakestream.model import StreamPartition

Offsets = Mapping[StreamPartition, CommittedOffset]
FindPending = Callable[[], Awaitable[PendingOffsets]]
"""Asks whether a transaction is open and has the group, and says what it is to have pending there. Raises what is in
the way."""

_Commit = tuple[Offsets | FindPending, "asyncio.Future[None]"]


class CommitQueue:
    def __init__(self, rows: GroupRows) -> None:
        self._rows = rows
        self._waiting: list[_Commit] = []
        self._writer: asyncio.Task[None] | None = None

    def add(self, offsets: Offsets | FindPending) -> "asyncio.Future[None]":
        """Done once the offsets are stored; fails as `GroupRows.commit` does, and as `FindPending` does."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        self._waiting.append((offsets, stored))
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write())
        return stored

    async def drained(self) -> None:
        """Returns when every commit that was added is decided."""
        if self._writer is not None:
            await asyncio.shield(self._writer)

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            merged: dict[StreamPartition, CommittedOffset] = {}
            pending: list[tuple[FindPending, asyncio.Future[None]]] = []
            for offsets, stored in batch:
                if callable(offsets):
                    pending.append((offsets, stored))
                else:
                    merged.update(offsets)

            failure: BaseException | None = None
            try:
                await self._rows.commit(merged, partial(_found, pending) if pending else None)
            except (LakestreamError, StaleGeneration) as error:
                failure = error
            for _, stored in batch:
                if stored.done():
                    continue
                if failure is None:
                    stored.set_result(None)
                else:
                    stored.set_exception(failure)


async def _found(asked: Sequence[tuple[FindPending, "asyncio.Future[None]"]]) -> list[PendingOffsets]:
    """Of those that no answer has turned away yet."""
    left = [(find, stored) for find, stored in asked if not stored.done()]
    found = await asyncio.gather(*(find() for find, _ in left), return_exceptions=True)
    pending = []
    for (_, stored), each in zip(left, found, strict=True):
        if isinstance(each, BaseException):
            if not isinstance(each, LakestreamError):
                raise each
            if not stored.done():
                stored.set_exception(each)
        else:
            pending.append(each)
    return pending
