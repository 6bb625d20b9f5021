"""Coordinators of consumer groups on one store whose clock and troubles a test rules."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from lakestream.coordination.groups import GroupCoordinator, Join, Joined, Protocol, Sync
from lakestream.coordination.settings import GroupSettings
from lakestream.errors import Unavailable
from lakestream.metadata.groups import CommittedOffset
from lakestream.metadata.store import Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.model import StreamPartition
from lakestream.runtime import Runtime, system
from support.fakes.loops import run
from support.fakes.streams import FakeStreams

QUICK = GroupSettings(initial_rebalance_delay_ms=5, min_session_timeout_ms=20)
PARTITION = StreamPartition(system().new_id(), 0)


class Clock:
    """Stands still until a test moves it: the store's idea of time, by which leases lapse."""

    ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


class TroubledStore(MemoryStore):
    """Fails transactions on demand, after or before they are applied, and remembers what was applied."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.fail_before = 0
        self.applied: list[Transaction] = []
        self.gate: asyncio.Event | None = None

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        if self.gate is not None:
            await self.gate.wait()
        if self.fail_before:
            self.fail_before -= 1
            raise Unavailable("no answer")
        self.applied.extend(transactions)
        return await super().transact(transactions)


class CoordinatorWorld:
    def __init__(self) -> None:
        self.clock = Clock()
        self.runtime = Runtime(self.clock, system().random)
        self.store = TroubledStore(self.runtime)

    @asynccontextmanager
    async def broker(self, broker_id: int = 1, settings: GroupSettings = QUICK) -> AsyncIterator[GroupCoordinator]:
        streams = FakeStreams(store=self.store, runtime=self.runtime, broker_id=broker_id, port=9000 + broker_id)
        self.topics = streams.topics
        await streams.brokers.register(streams.broker)
        coordinator = GroupCoordinator(streams.as_engine(), settings)
        await coordinator.start()
        try:
            yield coordinator
        finally:
            await coordinator.stop()


def joining(member_id: str = "", *, session_timeout_ms: int = 10_000, **changes: Any) -> Join:
    fields: dict[str, Any] = {
        "member_id": member_id,
        "instance_id": None,
        "client_id": "c",
        "client_host": "h",
        "session_timeout_ms": session_timeout_ms,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": (Protocol("range", b""),),
        "id_required": False,
        "skips_assignment": True,
    }
    return Join(**fields | changes)


async def member(coordinator: GroupCoordinator, group: str = "g", **changes: Any) -> Joined:
    """A lone member of a group at rest."""
    joined = await coordinator.join(group, joining(**changes))
    sync = Sync(joined.member_id, None, joined.generation, None, None, {joined.member_id: b"all"})
    assert (await coordinator.sync(group, sync)).assignment == b"all"
    return joined


def offset(number: int) -> dict[StreamPartition, CommittedOffset]:
    return {PARTITION: CommittedOffset(number, 0, "", 0)}


async def rows_of(store: MemoryStore) -> list[tuple[str, str]]:
    """Every row of every group."""
    shards = await store.shards("group/", "group0")
    return [(shard, row.key) for shard in shards for row in await store.range(shard, "", "~")]


def with_world(test: Callable[[CoordinatorWorld], Awaitable[None]]) -> None:
    async def work() -> None:
        await test(CoordinatorWorld())

    run(work())
