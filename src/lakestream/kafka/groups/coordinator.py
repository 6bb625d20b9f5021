"""The coordinator of consumer groups: leases, timers and stored rows around the state machine.

A group is coordinated by the one broker that holds its lease. Operations on a group run
one after another; those that wait for other members wait outside. When a lease is
lost, the group is forgotten and everyone who waits in it gets NOT_COORDINATOR; members then
find the new coordinator and join again.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError, NotCoordinator
from lakestream.kafka.groups.commits import Offsets
from lakestream.kafka.groups.leases import GroupLeases, Held
from lakestream.kafka.groups.model import Join, Joined, Sync, Synced
from lakestream.kafka.groups.state import Group
from lakestream.kafka.settings import GroupSettings
from lakestream.metadata.brokers import Broker, rendezvous
from lakestream.metadata.groups import (
    CommittedOffset,
    GroupState,
    StaleGeneration,
    committed_offsets,
    lease_holder,
    stored_groups,
)
from lakestream.model import StreamPartition
from lakestream.stream import Streams

log = logging.getLogger(__name__)

_SAVE_AGAIN_S = 0.5
_TIMER_SLACK_S = 0.001
"""Late rather than early: a timer that fires a rounding error before its deadline would find nothing to do, again and
again."""

T = TypeVar("T")


def holder_name(broker: Broker) -> str:
    """Under which name a broker holds leases: a restarted process is somebody else."""
    return f"{broker.broker_id}/{broker.session}"


class GroupCoordinator:
    """Methods raise `NotCoordinator` when another broker has the group, `Unavailable` when the store is away."""

    def __init__(self, streams: Streams, settings: GroupSettings) -> None:
        self._streams = streams
        self._store = streams.store
        self._settings = settings
        self._leases = GroupLeases(streams.store, holder_name(streams.broker), settings)
        self._renewal: asyncio.Task[None] | None = None
        self._ticks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._renewal = asyncio.create_task(self._leases.renew_forever())

    async def stop(self) -> None:
        """Answers everyone who waits and gives the leases back."""
        if self._renewal is not None:
            self._renewal.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewal
        await self._leases.release_all()

    async def find(self, group: str) -> Broker:
        """The broker to ask: the lease's holder if it lives, else the one everybody would choose."""
        return await self._chosen(group, await self._streams.brokers.live() or [self._streams.broker])

    async def _chosen(self, group: str, brokers: Sequence[Broker]) -> Broker:
        lease = await lease_holder(self._store, group)
        if lease is not None:
            for broker in brokers:
                if holder_name(broker) == lease.holder:
                    return broker
        return rendezvous(f"group/{group}", brokers)

    async def describe(self, group: str) -> Group | None:
        """The group as it stands, for reading only; None if nobody ever used it."""
        machine = (await self._leases.open(group)).machine
        used = machine.generation or machine.members or machine.pending or await committed_offsets(self._store, group)
        return machine if used else None

    def groups(self) -> list[Held]:
        """The groups that are in this broker's hands, for reading only."""
        return self._leases.held()

    async def listed(self) -> list[tuple[str, Group]]:
        """Those for which this broker is the one to ask, for reading only. What is in nobody's hands is at rest."""
        stored = set(await stored_groups(self._store))
        held = {each.name: each.machine for each in self._leases.held()}
        brokers = await self._streams.brokers.live() or [self._streams.broker]
        free = sorted(stored - held.keys())
        chosen = await asyncio.gather(*(self._chosen(name, brokers) for name in free))
        mine = {name: Group(0, 0) for name, broker in zip(free, chosen, strict=True) if broker == self._streams.broker}
        known = {name: machine for name, machine in held.items() if machine.members or name in stored}
        return sorted((known | mine).items())

    async def join(self, group: str, request: Join) -> Joined:
        settings = self._settings
        if not group:
            return Joined(ErrorCode.invalid_group_id, request.member_id)
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            return Joined(ErrorCode.invalid_session_timeout, request.member_id)
        answer: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        held = await self._leases.open(group)
        async with held.lock:
            self._check(held)
            held.machine.join(
                request, lambda joined: _tell(answer, joined), lambda: self._new_member_id(request), _now_ms()
            )
            await self._settle(held)
        return await answer

    async def sync(self, group: str, request: Sync) -> Synced:
        answer: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
        held = await self._leases.open(group)
        async with held.lock:
            self._check(held)
            held.machine.sync(request, lambda synced: _tell(answer, synced), _now_ms())
            await self._settle(held)
        return await answer

    async def heartbeat(self, group: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        held = await self._leases.open(group)
        async with held.lock:
            self._check(held)
            return held.machine.heartbeat(member_id, instance_id, generation, _now_ms())

    async def leave(self, group: str, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Each member by its id, its instance id, or both; their results in the same order."""
        held = await self._leases.open(group)
        async with held.lock:
            self._check(held)
            results = [held.machine.leave(member_id, instance_id, _now_ms()) for member_id, instance_id in members]
            await self._settle(held)
            return results

    async def commit(
        self, group: str, member_id: str, instance_id: str | None, generation: int, offsets: Offsets
    ) -> ErrorCode:
        """Stores the offsets if this member may commit now. Commits of a group land in the order of the calls."""
        held = await self._leases.open(group)
        async with held.lock:
            self._check(held)
            error = held.machine.commit_error(member_id, instance_id, generation, _now_ms())
            if error is not ErrorCode.none or not offsets:
                return error
            stored = held.commits.add(offsets)
        try:
            await stored
        except StaleGeneration:
            return ErrorCode.illegal_generation
        except NotCoordinator:
            self._leases.drop(held)
            raise
        return ErrorCode.none

    async def offsets(self, group: str) -> dict[StreamPartition, CommittedOffset]:
        """Everything the group has committed, read from the store."""
        await self._leases.open(group)
        return await committed_offsets(self._store, group)

    async def delete(self, group: str) -> ErrorCode:
        """Forgets a group that has no members, with its offsets."""
        held = await self._leases.open(group)
        async with held.lock:
            self._check(held)
            if held.machine.members or held.machine.pending:
                return ErrorCode.non_empty_group
            await held.commits.drained()
            if not held.machine.generation and not await committed_offsets(self._store, group):
                return ErrorCode.group_id_not_found
            try:
                await held.rows.delete()
            finally:
                # What is stored now is read by whoever opens the group next, also if the outcome is not known.
                await self._leases.give_back(held)
        return ErrorCode.none

    def _check(self, held: Held) -> None:
        if held.dropped:
            raise NotCoordinator(f"group {held.name} is coordinated elsewhere")

    def _new_member_id(self, request: Join) -> str:
        return f"{request.instance_id or request.client_id}-{self._streams.runtime.new_id()}"

    async def _settle(self, held: Held) -> None:
        """Begins the next generation if everyone is there, and sets the clock for whatever is next."""
        machine = held.machine
        retry = False
        while machine.ready(_now_ms()) and not retry:
            try:
                await held.commits.drained()
                await held.rows.save(GroupState(machine.generation + 1, machine.protocol_type))
            except NotCoordinator:
                self._leases.drop(held)
                raise
            except LakestreamError as error:
                log.warning("the next generation of group %s waits for the store: %s", held.name, error)
                retry = True
            else:
                machine.begin_generation(_now_ms())
                log.info(
                    "group %s: generation %d with %d members, %s",
                    held.name,
                    machine.generation,
                    len(machine.members),
                    machine.state.value,
                )
        self._arm(held, _now_ms() / 1000 + _SAVE_AGAIN_S if retry else machine.next_deadline_ms() / 1000)

    def _arm(self, held: Held, due_s: float) -> None:
        """Heartbeats only push deadlines back, so a timer that is set earlier finds nothing to do and is set anew."""
        if held.timer is not None:
            if held.timer.when() <= due_s and not held.timer.cancelled():
                return
            held.timer.cancel()
        held.timer = None
        if due_s != float("inf") and not held.dropped:
            held.timer = asyncio.get_running_loop().call_at(due_s + _TIMER_SLACK_S, self._tick, held)

    def _tick(self, held: Held) -> None:
        held.timer = None
        task = asyncio.get_running_loop().create_task(self._expire(held))
        self._ticks.add(task)
        task.add_done_callback(self._ticks.discard)

    async def _expire(self, held: Held) -> None:
        async with held.lock:
            if held.dropped:
                return
            for member_id in held.machine.expire(_now_ms()):
                log.info("group %s: member %s was not heard of in time", held.name, member_id)
            with suppress(NotCoordinator):
                await self._settle(held)


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def _tell(answer: "asyncio.Future[T]", value: T) -> None:
    if not answer.done():
        answer.set_result(value)
