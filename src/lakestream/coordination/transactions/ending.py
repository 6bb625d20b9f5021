"""The end of transactions: first it is prepared, which decides it; then it is written into every partition and group
that the transaction has; then it is complete.

Each step is idempotent and checks what was stored before, so whoever finds an end prepared may finish it, and several
may at once. Nobody holds anything meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from lakestream.coordination.transactions.deciding import completed
from lakestream.errors import LakestreamError
from lakestream.metadata.groups import end_in_group
from lakestream.metadata.log.ending import end_in_logs
from lakestream.metadata.log.transactions import Ending
from lakestream.metadata.store import Store
from lakestream.metadata.transactions import StoredTransaction, enlisted, read_state, write_state
from lakestream.model import StreamPartition
from lakestream.runtime import Clock

log = logging.getLogger(__name__)

EndInLogs = Callable[[Store, Ending, Sequence[StreamPartition]], Awaitable[Mapping[StreamPartition, object]]]

COORDINATOR_EPOCH: Final = 0
"""There is none: whoever ends a transaction does the same."""
_END_WAIT_S: Final = 2.0
"""So long a request waits for the end that it asked for. Then it hears that it is decided, as from Kafka at once."""
_AT_ONCE: Final = 16
"""Groups of one transaction that are written to side by side."""


class TransactionEnder:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._under_way: dict[str, asyncio.Task[StoredTransaction | None]] = {}

    async def finish(self, prepared: StoredTransaction) -> StoredTransaction | None:
        """What is stored when the end, which is prepared, is done; None: somebody has forgotten the id. Raises what
        keeps it from being done now."""
        return await asyncio.shield(self._task(prepared))

    async def finish_soon(self, prepared: StoredTransaction) -> StoredTransaction | None:
        """What is stored when the end is done; None if that takes long: it is decided in any case, and goes on."""
        task = self._task(prepared)
        done, _ = await asyncio.wait((task,), timeout=_END_WAIT_S)
        if not done:
            return None
        error = task.exception()
        if error is None:
            return task.result()
        if not isinstance(error, LakestreamError):
            raise error
        log.warning("transactional id %s: %s; it is tried again", prepared.state.transactional_id, error)
        return None

    async def stop(self) -> None:
        """What is under way comes to an end, here or with whoever finds it next."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=_END_WAIT_S)

    def _task(self, prepared: StoredTransaction) -> "asyncio.Task[StoredTransaction | None]":
        name = prepared.state.transactional_id
        task = self._under_way.get(name)
        if task is None:
            task = self._under_way[name] = asyncio.create_task(self._finish(prepared))
            task.add_done_callback(lambda done: self._ended(name, done))
        return task

    def _ended(self, name: str, task: "asyncio.Task[StoredTransaction | None]") -> None:
        del self._under_way[name]
        if not task.cancelled():
            task.exception()  # Whoever waits hears of it; nobody may.

    async def _finish(self, prepared: StoredTransaction) -> StoredTransaction | None:
        state = prepared.state
        end = state.end
        assert end is not None
        parts = await enlisted(self._store, state.transactional_id)
        ending = Ending(
            transactional_id=state.transactional_id,
            number=state.number,
            producer_id=end.producer_id,
            epoch=end.epoch,
            committed=end.committed,
            next_epoch=end.next_epoch,
            coordinator_epoch=COORDINATOR_EPOCH,
            time_ms=self._clock.now_ms(),
        )
        slots = asyncio.Semaphore(_AT_ONCE)

        async def in_group(group: str) -> None:
            async with slots:
                await end_in_group(self._store, group, end.producer_id, state.number, committed=end.committed)

        async def in_logs() -> None:
            if parts.partitions:
                await end_in_logs(self._store, ending, parts.partitions)

        # All are tried: one that cannot be ended now does not hold the others back.
        results = await asyncio.gather(in_logs(), *map(in_group, parts.groups), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        done = await write_state(self._store, completed(state, self._clock.now_ms()), prepared.version, is_over=True)
        return done or await read_state(self._store, state.transactional_id)
