"""The groups that this broker coordinates: each held by a lease that is renewed in the background.

Local time decides when to stop believing in a lease, and counts from before it was asked
for; the store decides everything else. A write with a lease that was lost is refused there.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from lakestream.coordination.groups.commits import CommitQueue
from lakestream.coordination.groups.converting import Machine
from lakestream.coordination.groups.keeping import restored
from lakestream.coordination.groups.model import GroupError
from lakestream.coordination.settings import GroupSettings
from lakestream.errors import LakestreamError, NotCoordinator, Unavailable
from lakestream.metadata.groups import GroupRows, GroupState, lease_address
from lakestream.metadata.store import Store

log = logging.getLogger(__name__)


@dataclass(slots=True)
class WaitingAnswer:
    """What a member hears once it is stored, or if it cannot be any more."""

    give: Callable[[], None]
    refuse: Callable[[], None]


@dataclass(slots=True, eq=False)
class Held:
    """One group in this broker's hands. Whoever changes `machine` holds `lock`. `state` is the row as it was last
    stored."""

    name: str
    token: int
    rows: GroupRows
    machine: Machine
    state: GroupState
    commits: CommitQueue
    expires_s: float
    used_s: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    commit_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held from the moment when a commit arrives until it is in the queue: commits land in the order of arrival."""
    answers: list[WaitingAnswer] = field(default_factory=list)
    """Given when the group is stored as the machine has it."""
    unsaved_since_ms: float | None = None
    timer: asyncio.TimerHandle | None = None
    dropped: bool = False

    def give_answers(self) -> None:
        answers, self.answers = self.answers, []
        for each in answers:
            each.give()

    @property
    def is_empty(self) -> bool:
        """Nobody is in it or on the way, and the store knows."""
        machine = self.machine
        return not machine.members and not machine.pending and not machine.unsaved and not self.lock.locked()


class GroupLeases:
    """`on_taken` hears of every group that was taken over."""

    def __init__(
        self, store: Store, holder: str, settings: GroupSettings, on_taken: Callable[[Held], None] = lambda _: None
    ) -> None:
        self._store = store
        self._on_taken = on_taken
        self._holder = holder
        self._settings = settings
        self._held: dict[str, Held] = {}
        self._opening: dict[str, asyncio.Task[Held]] = {}
        self._stopping = False

    def held(self) -> list[Held]:
        return list(self._held.values())

    def has(self, group: str) -> bool:
        """Whether the group is in this broker's hands, or about to be."""
        return group in self._held or group in self._opening

    async def open(self, group: str) -> Held:
        """The group, taken over if its lease is free. Raises `NotCoordinator` if another broker has it."""
        now_s = asyncio.get_running_loop().time()
        held = self._held.get(group)
        if held is not None and now_s < held.expires_s:
            held.used_s = now_s
            return held
        if self._stopping:
            raise NotCoordinator(
                f"this broker is stopping and hands its groups over: find the coordinator of {group} again"
            )
        opening = self._opening.get(group)
        if opening is None:
            opening = asyncio.create_task(self._take(group))
            self._opening[group] = opening
            opening.add_done_callback(lambda _: self._opening.pop(group, None))
        opened = await asyncio.shield(opening)
        if asyncio.get_running_loop().time() - now_s > self._settings.lease_ttl_ms / 2000:
            # Another broker may have coordinated the group meanwhile, and whoever asks may have gone on there.
            raise NotCoordinator(f"it took long to take group {group} over: ask again")
        return opened

    async def _take(self, group: str) -> Held:
        stale = self._held.get(group)
        if stale is not None:
            self.drop(stale)
        now_s, ttl_ms = asyncio.get_running_loop().time(), self._settings.lease_ttl_ms
        lease = await self._store.acquire_lease(lease_address(group), self._holder, ttl_ms=ttl_ms)
        if lease.holder != self._holder:
            raise NotCoordinator(f"group {group} is coordinated by {lease.holder}")
        rows = GroupRows(self._store, group, lease.token)
        kept = await rows.load()
        machine = restored(kept, self._settings, asyncio.get_running_loop().time() * 1000)
        held = Held(group, lease.token, rows, machine, kept.state, CommitQueue(rows), now_s + ttl_ms / 1000, now_s)
        self._held[group] = held
        log.info(
            "coordinating group %s from generation %d on, with %d members",
            group,
            machine.generation,
            len(machine.members),
        )
        self._on_taken(held)
        return held

    def drop(self, held: Held) -> None:
        """Forgets the group; whoever waits in it hears that it is coordinated elsewhere."""
        if not held.dropped:
            held.dropped = True
            if held.timer is not None:
                held.timer.cancel()
            if self._held.get(held.name) is held:
                del self._held[held.name]
            for each in held.answers:
                each.refuse()
            held.answers.clear()
            held.machine.dismiss_all(GroupError.NOT_COORDINATOR)
            held.give_answers()

    async def renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_ttl_ms / 3000)
            if self._held:
                await asyncio.gather(*(self._renew(held) for held in self.held()))

    async def _renew(self, held: Held) -> None:
        now_s = asyncio.get_running_loop().time()
        idle_ms = (now_s - held.used_s) * 1000
        if held.is_empty and idle_ms > self._settings.idle_release_ms:
            await self.give_back(held)
            return
        try:
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
        """Forgets the group; who comes next reads it from the store. Of a name that nobody uses nothing stays there."""
        self.drop(held)
        await held.commits.drained()
        try:
            if held.is_empty:
                await held.rows.forget_unused()
            await self._store.release_lease(lease_address(held.name), held.token)
        except NotCoordinator:
            return
        except LakestreamError as error:
            log.warning("the lease of group %s was not given back and will lapse: %s", held.name, error)
