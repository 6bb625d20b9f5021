"""The groups that this broker coordinates: each held by a lease that is renewed in the background.

Local time decides when to stop believing in a lease, and counts from before it was asked
for; the store decides everything else. A write with a lease that was lost is refused there.
"""

import asyncio
import logging
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from lakestream.errors import NotCoordinator, Unavailable
from lakestream.kafka.groups.commits import CommitQueue
from lakestream.kafka.groups.state import Group
from lakestream.kafka.settings import GroupSettings
from lakestream.metadata.groups import GroupRows, lease_address
from lakestream.metadata.store import Store

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Held:
    """One group in this broker's hands. Whoever changes `machine` holds `lock`."""

    name: str
    token: int
    rows: GroupRows
    machine: Group
    commits: CommitQueue
    expires_s: float
    used_s: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None
    dropped: bool = False


class GroupLeases:
    def __init__(self, store: Store, holder: str, settings: GroupSettings) -> None:
        self._store = store
        self._holder = holder
        self._settings = settings
        self._held: dict[str, Held] = {}
        self._opening: dict[str, asyncio.Task[Held]] = {}
        self._stopping = False

    def held(self) -> list[Held]:
        return list(self._held.values())

    async def open(self, group: str) -> Held:
        """The group, taken over if its lease is free. Raises `NotCoordinator` if another broker has it."""
        now_s = asyncio.get_running_loop().time()
        held = self._held.get(group)
        if held is not None and now_s < held.expires_s:
            held.used_s = now_s
            return held
        if self._stopping:
            raise NotCoordinator(f"this broker gives its groups away: {group}")
        opening = self._opening.get(group)
        if opening is None:
            opening = asyncio.create_task(self._take(group))
            self._opening[group] = opening
            opening.add_done_callback(lambda _: self._opening.pop(group, None))
        return await asyncio.shield(opening)

    async def _take(self, group: str) -> Held:
        stale = self._held.get(group)
        if stale is not None:
            self.drop(stale)
        now_s, ttl_ms = asyncio.get_running_loop().time(), self._settings.lease_ttl_ms
        lease = await self._store.acquire_lease(lease_address(group), self._holder, ttl_ms=ttl_ms)
        if lease.holder != self._holder:
            raise NotCoordinator(f"group {group} is coordinated by {lease.holder}")
        rows = GroupRows(self._store, group, lease.token)
        state = await rows.load()
        machine = Group(
            self._settings.initial_rebalance_delay_ms,
            self._settings.max_members,
            generation=state.generation,
            protocol_type=state.protocol_type,
        )
        held = Held(group, lease.token, rows, machine, CommitQueue(rows), now_s + ttl_ms / 1000, now_s)
        self._held[group] = held
        log.info("coordinating group %s from generation %d on", group, state.generation)
        return held

    def drop(self, held: Held) -> None:
        """Forgets the group; whoever waits in it hears that it is coordinated elsewhere."""
        if not held.dropped:
            held.dropped = True
            if held.timer is not None:
                held.timer.cancel()
            if self._held.get(held.name) is held:
                del self._held[held.name]
            held.machine.dismiss_all(ErrorCode.not_coordinator)

    async def renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_ttl_ms / 3000)
            if self._held:
                await asyncio.gather(*(self._renew(held) for held in self.held()))

    async def _renew(self, held: Held) -> None:
        now_s = asyncio.get_running_loop().time()
        idle_ms = (now_s - held.used_s) * 1000
        empty = not held.machine.members and not held.machine.pending and not held.lock.locked()
        try:
            if empty and idle_ms > self._settings.idle_release_ms:
                self.drop(held)
                await held.commits.drained()
                await self._store.release_lease(lease_address(held.name), held.token)
                return
            lease = await self._store.acquire_lease(
                lease_address(held.name), self._holder, ttl_ms=self._settings.lease_ttl_ms
            )
        except Unavailable as error:
            log.warning("the lease of group %s could not be renewed: %s", held.name, error)
            if now_s >= held.expires_s:
                self.drop(held)
            return
        if lease.token == held.token:
            held.expires_s = now_s + self._settings.lease_ttl_ms / 1000
            return
        log.warning("the lease of group %s was lost to %s", held.name, lease.holder)
        self.drop(held)

    async def release_all(self) -> None:
        """Gives every group away, so that another broker need not wait for the leases to lapse."""
        self._stopping = True
        await asyncio.gather(*(self.give_back(held) for held in self.held()))

    async def give_back(self, held: Held) -> None:
        """Forgets the group; who comes next reads it from the store."""
        self.drop(held)
        await held.commits.drained()
        try:
            await self._store.release_lease(lease_address(held.name), held.token)
        except Unavailable as error:
            log.warning("the lease of group %s was not given back and will lapse: %s", held.name, error)
