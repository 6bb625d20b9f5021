"""The coordinator of consumer groups: leases, timers and stored rows around the state machine.

A group is coordinated by the one broker that holds its lease. Operations on a group run
one after another; those that wait for other members wait outside. Nobody hears of a
generation, a membership or an assignment before it is stored. When a lease is
lost, the group is forgotten and everyone who waits in it gets NOT_COORDINATOR; members then
find the new coordinator, which goes on with what is stored.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lakestream.coordination.groups import mixing
from lakestream.coordination.groups.classic.state import Group, State
from lakestream.coordination.groups.classic.subscriptions import CONSUMERS, subscribed
from lakestream.coordination.groups.commits import Offsets
from lakestream.coordination.groups.configured import ConfiguredGroups
from lakestream.coordination.groups.consumer.group import ConsumerGroup, ConsumerState
from lakestream.coordination.groups.consumer.model import JOINS, Beat, Beaten
from lakestream.coordination.groups.consumer.topics import NO_TOPICS, KnownTopics
from lakestream.coordination.groups.converting import Machine, new_share_group
from lakestream.coordination.groups.keeping import state_of
from lakestream.coordination.groups.leases import Held
from lakestream.coordination.groups.model import GroupError, Join, Joined, Sync, Synced
from lakestream.coordination.groups.settling import Settler, answering, check, now_ms
from lakestream.coordination.groups.share.group import ShareGroup, ShareGroupState, problem_of
from lakestream.coordination.groups.sweeping import Sweeper
from lakestream.coordination.groups.transactional import TransactionalCommits
from lakestream.coordination.groups.watching import TopicWatch
from lakestream.coordination.settings import GroupSettings
from lakestream.errors import NotCoordinator
from lakestream.metadata.brokers import Broker, rendezvous
from lakestream.metadata.groups import (
    CommittedOffset,
    Kind,
    StaleGeneration,
    committed_offsets,
    is_stored,
    last_holder,
    lease_holder,
    pending_partitions,
    stored_groups,
)
from lakestream.metadata.shares import forget_shares, share_partitions
from lakestream.model import StreamPartition
from lakestream.stream.engine import StreamEngine

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listed:
    """A group in a list."""

    name: str
    protocol_type: str
    state: State | ConsumerState | ShareGroupState
    kind: Kind


def kind_of(machine: Machine) -> Kind:
    if isinstance(machine, ShareGroup):
        return "share"
    return "classic" if isinstance(machine, Group) else "consumer"


def holder_name(broker: Broker) -> str:
    """Under which name a broker holds leases: a restarted process is somebody else."""
    return f"{broker.broker_id}/{broker.session}"


class GroupCoordinator:
    """Methods raise `NotCoordinator` when another broker has the group, `Unavailable` when the store is away."""

    def __init__(self, engine: StreamEngine, settings: GroupSettings) -> None:
        self._engine = engine
        self._store = engine.store
        self._settings = settings
        self._settler = Settler(engine.store, holder_name(engine.broker), settings, engine.runtime.clock)
        self._leases = self._settler.leases
        self._topics = TopicWatch(engine.topics)
        self.configured = ConfiguredGroups(engine.store, settings)
        self.sweeper = Sweeper(engine, self._leases, settings)
        self.transactional = TransactionalCommits(self._leases)
        self._background: list[asyncio.Task[None]] = []

    @property
    def rebalances(self) -> int:
        """How many generations were begun here."""
        return self._settler.rebalances

    async def start(self) -> None:
        self._background = [
            asyncio.create_task(self._leases.renew_forever()),
            asyncio.create_task(self.sweeper.sweep_forever()),
        ]

    async def stop(self) -> None:
        """Answers everyone who waits and gives the leases back."""
        for task in self._background:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._leases.release_all()

    async def find(self, group: str) -> Broker:
        """The broker to ask: the lease's holder if it lives, else the one everybody would choose."""
        return await self._chosen(group, await self._engine.brokers.live() or [self._engine.broker])

    async def _chosen(self, group: str, brokers: Sequence[Broker]) -> Broker:
        lease = await lease_holder(self._store, group)
        if lease is not None:
            for broker in brokers:
                if holder_name(broker) == lease.holder:
                    return broker
        # A broker that let the lease lapse is most likely dead, though the list of brokers does not say so yet.
        lapsed = None if lease is not None else await last_holder(self._store, group)
        return rendezvous(f"group/{group}", [each for each in brokers if holder_name(each) != lapsed] or brokers)

    async def describe(self, group: str) -> Machine | None:
        """The group as it stands, for reading only; None if nobody ever used it."""
        held = await self._existing(group)
        if held is None:
            return None
        machine = held.machine
        used = machine.generation or machine.members or machine.pending or await committed_offsets(self._store, group)
        return machine if used else None

    async def described_topics(self, machine: Machine) -> KnownTopics:
        """Those that a group of the newer protocol speaks of by their ids."""
        return NO_TOPICS if isinstance(machine, Group) else await self._topics.known(fresh=True)

    async def _existing(self, group: str) -> Held | None:
        """None if nobody uses the group. A name that was only asked for is not taken."""
        if not self._leases.has(group):
            holder, known = await asyncio.gather(lease_holder(self._store, group), is_stored(self._store, group))
            if holder is None and not known:
                return None
        return await self._leases.open(group)

    def groups(self) -> list[Held]:
        """The groups that are in this broker's hands, for reading only."""
        return self._leases.held()

    async def listed(self) -> list[Listed]:
        """Those for which this broker is the one to ask. One in nobody's hands is as its last coordinator left it."""
        rows = await stored_groups(self._store)
        held = {each.name: each.machine for each in self._leases.held()}
        brokers = await self._engine.brokers.live() or [self._engine.broker]
        free = sorted(rows.keys() - held.keys())
        chosen = await asyncio.gather(*(self._chosen(name, brokers) for name in free))
        found = [
            Listed(name, rows[name].protocol_type, state_of(rows[name]), rows[name].kind)
            for name, broker in zip(free, chosen, strict=True)
            if broker == self._engine.broker
        ]
        found += [
            Listed(name, machine.protocol_type, machine.state, kind_of(machine))
            for name, machine in held.items()
            if machine.members or name in rows
        ]
        return sorted(found, key=lambda each: each.name)

    async def join(self, group: str, request: Join) -> Joined:
        settings = self._settings
        if not group:
            return Joined(GroupError.INVALID_NAME, request.member_id)
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            return Joined(GroupError.INVALID_SESSION_TIMEOUT, request.member_id)
        answer: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        held = await self._leases.open(group)
        async with held.lock:
            check(held)
            mixing.join(
                held,
                request,
                answering(held, answer, lambda joined: Joined(GroupError.NOT_COORDINATOR, joined.member_id)),
                lambda: self._new_member_id(request),
                await self._topics_for(held),
                settings,
                now_ms(),
            )
            await self._settler.settle(held)
        return await answer

    async def sync(self, group: str, request: Sync) -> Synced:
        answer: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
        held = await self._existing(group)
        if held is None:
            return Synced(GroupError.UNKNOWN_MEMBER)
        async with held.lock:
            check(held)
            keep = answering(held, answer, lambda _: Synced(GroupError.NOT_COORDINATOR))
            mixing.sync(held, request, keep, await self._topics_for(held), now_ms())
            await self._settler.settle(held)
        return await answer

    async def heartbeat(self, group: str, member_id: str, instance_id: str | None, generation: int) -> GroupError:
        held = await self._existing(group)
        if held is None:
            return GroupError.UNKNOWN_MEMBER
        async with held.lock:
            check(held)
            told = mixing.heartbeat(held, member_id, instance_id, generation, now_ms())
            if told is not GroupError.NONE:
                await self._settler.settle(held)
            return told

    async def beat(self, group: str, heartbeat: Beat, *, shares: bool = False) -> Beaten:
        """A heartbeat of the newer protocol, or of a share group. One that changes nothing writes nothing."""
        if shares:
            problem = "" if group else "a group has a name"
            if problem := problem or problem_of(heartbeat):
                return Beaten(GroupError.INVALID_REQUEST, message=problem)
        elif not group:
            return Beaten(GroupError.INVALID_NAME, message="a group has a name")
        joins = heartbeat.epoch == JOINS
        if joins and heartbeat.gets_id and not heartbeat.member_id:
            heartbeat = replace(heartbeat, member_id=str(self._engine.runtime.new_id()))
        held = await (self._leases.open(group) if joins else self._existing(group))
        if held is None:
            return Beaten(GroupError.UNKNOWN_GROUP, message=f"there is no group {group}")
        answer: asyncio.Future[Beaten] = asyncio.get_running_loop().create_future()
        async with held.lock:
            check(held)
            topics = await self._topics.known(fresh=heartbeat.is_full)
            settings = await self.configured.of(group)
            check(held)
            if shares:
                begins = joins and isinstance(held.machine, Group)
                is_free = begins and not await committed_offsets(self._store, group)
                check(held)
                beaten = mixing.share_beat(held, heartbeat, topics, settings, now_ms(), is_free=is_free)
            else:
                beaten = mixing.beat(held, heartbeat, topics, settings, now_ms())
            if beaten.error is not GroupError.NONE:
                return beaten
            if not held.machine.unsaved:
                return beaten
            answering(held, answer, lambda _: Beaten(GroupError.NOT_COORDINATOR))(beaten)
            await self._settler.settle(held)
        return await answer

    async def _topics_for(self, held: Held) -> KnownTopics:
        return await self._topics.known(fresh=False) if isinstance(held.machine, ConsumerGroup) else NO_TOPICS

    async def leave(self, group: str, members: Sequence[tuple[str, str | None]]) -> list[GroupError]:
        """Each member by its id, its instance id, or both; their results in the same order."""
        held = await self._existing(group)
        if held is None:
            return [GroupError.UNKNOWN_MEMBER for _ in members]
        async with held.lock:
            check(held)
            results = [mixing.leave(held, member_id, instance_id, now_ms()) for member_id, instance_id in members]
            await self._settler.settle(held)
            return results

    async def commit(
        self, group: str, member_id: str, instance_id: str | None, generation: int, offsets: Offsets
    ) -> GroupError:
        """Stores the offsets if this member may commit now. Commits of a group land in the order of the calls."""

        async def known() -> Offsets:
            return offsets

        return await self.commit_found(group, member_id, instance_id, generation, known)

    async def commit_found(
        self,
        group: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        find: Callable[[], Awaitable[Offsets]],
    ) -> GroupError:
        """The same for offsets that have to be found out first, in the same order of the calls."""
        held = await self._leases.open(group)
        async with held.commit_order:
            offsets = await find()
            async with held.lock:
                check(held)
                error = held.machine.commit_error(member_id, instance_id, generation, now_ms())
                if error is not GroupError.NONE or not offsets:
                    return error
                stored = held.commits.add(offsets)
        try:
            await stored
        except StaleGeneration:
            return GroupError.STALE_GENERATION
        except NotCoordinator:
            self._leases.drop(held)
            raise
        return GroupError.NONE

    async def fetch_error(self, group: str, member_id: str | None, epoch: int) -> GroupError:
        """Whether who asks for offsets as a member is one, in a group of the newer protocol, and where it believes to
        be."""
        held = await self._existing(group)
        if held is None or not isinstance(held.machine, ConsumerGroup) or (member_id is None and epoch < 0):
            return GroupError.NONE
        return held.machine.epoch_error(member_id or "", epoch)

    async def offsets(self, group: str) -> dict[StreamPartition, CommittedOffset]:
        """Everything the group has committed, read from the store."""
        if await self._existing(group) is None:
            return {}
        return await committed_offsets(self._store, group)

    async def pending(self, group: str) -> frozenset[StreamPartition]:
        """Those for which a transaction that has not ended has offsets. Read before the offsets themselves: whatever
        was pending before is then in them, or still pending."""
        return await pending_partitions(self._store, group)

    async def delete_offsets(
        self, group: str, wanted: Mapping[StreamPartition, str]
    ) -> tuple[GroupError, frozenset[StreamPartition]]:
        """Forgets what was committed for these partitions, each with the name of its topic. Those whose topic a member
        subscribes to stay, and are returned; a group of another kind than consumers keeps all as long as it has
        members."""
        nothing = frozenset[StreamPartition]()
        if not group:
            return GroupError.INVALID_NAME, nothing
        held = await self._existing(group)
        if held is None:
            return GroupError.UNKNOWN_GROUP, nothing
        async with held.lock:
            check(held)
            await held.commits.drained()
            machine = held.machine
            if isinstance(machine, ShareGroup):
                return GroupError.UNKNOWN_GROUP, nothing
            if not (machine.generation or machine.members or await committed_offsets(self._store, group)):
                return GroupError.UNKNOWN_GROUP, nothing
            kept = nothing
            if machine.members:
                if machine.protocol_type != CONSUMERS:
                    return GroupError.NOT_EMPTY, nothing
                read = subscribed(machine.members.values()) if isinstance(machine, Group) else machine.subscribed()
                kept = frozenset(wanted if read is None else (each for each, name in wanted.items() if name in read))
            gone = wanted.keys() - kept
            if gone:
                try:
                    await held.rows.drop_offsets(gone)
                except NotCoordinator:
                    self._leases.drop(held)
                    raise
            return GroupError.NONE, kept

    async def delete(self, group: str) -> GroupError:
        """Forgets a group that has no members, with its offsets."""
        held = await self._existing(group)
        if held is None:
            return GroupError.UNKNOWN_GROUP
        async with held.lock:
            check(held)
            if held.machine.members or held.machine.pending:
                return GroupError.NOT_EMPTY
            await held.commits.drained()
            if not held.machine.generation and not await committed_offsets(self._store, group):
                return GroupError.UNKNOWN_GROUP
            await forget_shares(self._store, group, await share_partitions(self._store, group))
            try:
                await held.rows.delete()
            finally:
                # What is stored now is read by whoever opens the group next, also if the outcome is not known.
                await self._leases.give_back(held)
        return GroupError.NONE

    async def while_empty(
        self, group: str, work: Callable[[], Awaitable[None]], *, creates: bool = False
    ) -> GroupError:
        """Does something to a share group that has no members, and none comes meanwhile."""
        held = await (self._leases.open(group) if creates else self._existing(group))
        if held is None:
            return GroupError.UNKNOWN_GROUP
        async with held.lock:
            check(held)
            found = held.machine
            if creates and isinstance(found, Group) and not await committed_offsets(self._store, group):
                found = new_share_group(found, self._settings) or found
            if not isinstance(found, ShareGroup):
                return GroupError.UNKNOWN_GROUP
            if found.members:
                return GroupError.NOT_EMPTY
            await work()
            check(held)
            if found is not held.machine:
                held.machine = found
                found.bump()
                await self._settler.settle(held)
        return GroupError.NONE

    def _new_member_id(self, request: Join) -> str:
        return f"{request.instance_id or request.client_id}-{self._engine.runtime.new_id()}"
