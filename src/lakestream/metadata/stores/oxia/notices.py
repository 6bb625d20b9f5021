"""While somebody watches: a look at the store from time to time.

Oxia's notifications say at once which roots were written. They are hints: a stream of them can be lost, and a namespace
may have them switched off. What is read is the truth.
"""

import asyncio
from contextlib import suppress
from typing import Final

from lakestream.metadata.stores.watching import Watchers

POLL_INTERVAL_S: Final = 5.0


class Polling:
    """Belongs to one event loop. `watched` is to be told when somebody begins or ceases to wait."""

    def __init__(self, watchers: Watchers) -> None:
        self._watchers = watchers
        self._task: asyncio.Task[None] | None = None

    def watched(self, is_watched: bool) -> None:
        if is_watched and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            self._watchers.something_changed()
