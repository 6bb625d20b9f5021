"""Offset commits of one group, written in order and together: while one write is under way, the next gathers."""

import asyncio
from collections.abc import Mapping

from lakestream.errors import LakestreamError
from lakestream.metadata.groups import CommittedOffset, GroupRows, StaleGeneration
from lakestream.model import StreamPartition

Offsets = Mapping[StreamPartition, CommittedOffset]


class CommitQueue:
    def __init__(self, rows: GroupRows) -> None:
        self._rows = rows
        self._waiting: list[tuple[Offsets, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    def add(self, offsets: Offsets) -> "asyncio.Future[None]":
        """Done once the offsets are stored; fails as `GroupRows.commit` does."""
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
            for offsets, _ in batch:
                merged.update(offsets)
            failure: LakestreamError | StaleGeneration | None = None
            try:
                await self._rows.commit(merged)
            except (LakestreamError, StaleGeneration) as error:
                failure = error
            for _, stored in batch:
                if stored.done():
                    continue
                if failure is None:
                    stored.set_result(None)
                else:
                    stored.set_exception(failure)
