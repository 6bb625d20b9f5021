"""Members of a consumer group: they join, share the partitions, read on from what was committed, commit, and leave.
They name the topic, as clients do. And a stranger, who treats the group as if it were empty."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from lakestream.coordination.groups import GroupCoordinator
from lakestream.coordination.groups.model import GroupError, Join, Joined, Protocol, Sync
from lakestream.errors import NotCoordinator, RetryableError, UnknownStream
from lakestream.kafka.apis import p08_offset_commit, p09_offset_fetch
from lakestream.kafka.errors import group_code
from lakestream.metadata.groups import CommittedOffset
from lakestream.model import StreamPartition
from simulator.membership import FORGOTTEN
from simulator.outsiders import TOPIC

if TYPE_CHECKING:
    from simulator.actors import BrokerActor
    from simulator.history import History

T = TypeVar("T")

GROUP: Final = "readers"
_STRAYS: Final = 0.2
"""How often a member asks some broker and not the one it was told: what clients know of coordinators is often old."""
_NOBODYS: Final = 99
"""A partition that no member reads."""
_VERSION: Final = 7
_GROUP_ERRORS: Final = {group_code(error): error for error in GroupError}


@dataclass(frozen=True, slots=True)
class _PartitionCommit:
    partition_index: int
    committed_offset: int
    committed_metadata: str


@dataclass(frozen=True, slots=True)
class _TopicCommit:
    name: str
    partitions: list[_PartitionCommit]


@dataclass(frozen=True, slots=True)
class _Commit:
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    topics: list[_TopicCommit]


@dataclass(frozen=True, slots=True)
class _TopicFetch:
    name: str
    partition_indexes: list[int]


@dataclass(frozen=True, slots=True)
class _Fetch:
    group_id: str
    topics: list[_TopicFetch]


class MemberActor:
    """Goes on under its generation as long as it can, at whichever broker coordinates the group."""

    def __init__(self, history: "History", number: int) -> None:
        self._history = history
        self._name = f"member{number}"
        self._member_id = ""
        self._positions: dict[int, int] = {}
        self._commits = 0

    async def live(self) -> None:
        random = self._history.world.random
        while True:
            await asyncio.sleep(random.uniform(0.02, 0.4))
            try:
                await self._belong()
            except (RetryableError, NotCoordinator, UnknownStream):
                continue

    async def _belong(self) -> None:
        """One membership, from join to whatever ends it."""
        history = self._history
        coordinator = await self._find()
        joined, asked_s = await self._ask(coordinator, lambda group: group.join(GROUP, self._join()))
        if joined.error is GroupError.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return
        if joined.error is not GroupError.NONE:
            self._refused(None, joined.error, asked_s)
            self._give_up()
            return
        self._member_id = joined.member_id
        self._seated(joined.generation, asked_s)
        plan = self._plan(joined) if joined.leader == joined.member_id else {}
        sync = Sync(self._member_id, None, joined.generation, "consumer", "range", plan)
        synced, asked_s = await self._ask(coordinator, lambda group: group.sync(GROUP, sync))
        if synced.error is not GroupError.NONE:
            self._refused(joined.generation, synced.error, asked_s)
            return
        self._seated(joined.generation, asked_s)
        mine = msgspec.msgpack.decode(synced.assignment, type=list[int]) if synced.assignment else []
        history.world.trace(f"{self._name} has {mine} in generation {joined.generation}")
        await self._read(coordinator, joined.generation, mine)

    async def _read(self, coordinator: "BrokerActor", generation: int, mine: list[int]) -> None:
        random = self._history.world.random
        await self._resume(coordinator, mine)
        for _ in range(random.randint(1, 8)):
            await asyncio.sleep(random.uniform(0.02, 0.4))
            try:
                if not (
                    await self._lives(coordinator, generation) and await self._commit(coordinator, generation, mine)
                ):
                    return
            except (RetryableError, NotCoordinator):
                coordinator = await self._find()
        if random.random() < 0.3:
            leaving, self._member_id = self._member_id, ""
            self._history.membership.gives_up(leaving)
            await coordinator.coordinate(lambda group: group.leave(GROUP, [(leaving, None)]))

    async def _resume(self, coordinator: "BrokerActor", mine: list[int]) -> None:
        history, topic = self._history, self._history.topic
        request = _Fetch(GROUP, [_TopicFetch(TOPIC, mine)])
        answer = await coordinator.ask(p09_offset_fetch.handle, _VERSION, request)
        if answer.get("error_code", ErrorCode.none) is not ErrorCode.none:
            raise NotCoordinator(f"{self._name} is told {answer['error_code'].name}")
        for each in answer["topics"][0]["partitions"]:
            index, known = each["partition_index"], each["committed_offset"]
            if known >= 0:
                history.membership.fetched(each["metadata"], None if topic is None else topic.topic_id)
            # A commit of its own that it gave up may land yet: a member never asks to go back.
            self._positions[index] = max(self._positions.get(index, 0), known)

    async def _lives(self, coordinator: "BrokerActor", generation: int) -> bool:
        error, asked_s = await self._ask(
            coordinator, lambda group: group.heartbeat(GROUP, self._member_id, None, generation)
        )
        return self._goes_on(error, generation, asked_s)

    async def _commit(self, coordinator: "BrokerActor", generation: int, mine: list[int]) -> bool:
        """As clients do that commit in the background: whatever becomes of it, the next commit says it all again."""
        for index in mine:
            self._positions[index] = self._positions.get(index, 0) + self._history.world.random.randint(0, 2)
        self._commits += 1
        mark = f"{self._name}.{self._commits}"
        self._history.membership.committing(mark)
        partitions = [_PartitionCommit(index, self._positions[index], mark) for index in mine]
        request = _Commit(GROUP, generation, self._member_id, [_TopicCommit(TOPIC, partitions)])
        asked_s, process = self._history.loop.time(), coordinator.process
        answer = await coordinator.ask(p08_offset_commit.handle, _VERSION, request)
        codes = {each["error_code"] for each in answer["topics"][0]["partitions"]}
        if ErrorCode.not_coordinator in codes:
            raise NotCoordinator(f"{self._name} commits elsewhere")
        heard_s = asked_s if self._history.watcher.coordinates(GROUP, process) else None
        told = [_GROUP_ERRORS.get(code) for code in codes]
        stays = [self._goes_on(code, generation, heard_s) for code in told if code in (*FORGOTTEN, GroupError.NONE)]
        return ErrorCode.rebalance_in_progress not in codes and all(stays)

    def _goes_on(self, error: GroupError, generation: int, asked_s: float | None) -> bool:
        if error is GroupError.NONE:
            self._seated(generation, asked_s)
            return True
        self._refused(generation, error, asked_s)
        if error in FORGOTTEN:
            self._give_up()
        return False

    def _seated(self, generation: int, asked_s: float | None) -> None:
        if asked_s is not None:
            self._history.membership.seated(self._member_id, generation, asked_s)

    def _refused(self, generation: int | None, error: GroupError, asked_s: float | None) -> None:
        if asked_s is not None:
            self._history.membership.refused(self._member_id, generation, error)

    def _give_up(self) -> None:
        self._history.membership.gives_up(self._member_id)
        self._member_id = ""

    async def _ask(
        self, broker: "BrokerActor", work: Callable[[GroupCoordinator], Awaitable[T]]
    ) -> tuple[T, float | None]:
        """The answer, and when it was asked for; None if whoever answered is not the group's coordinator any more."""
        asked_s, process = self._history.loop.time(), broker.process
        answer = await broker.coordinate(work)
        return answer, asked_s if self._history.watcher.coordinates(GROUP, process) else None

    async def _find(self) -> "BrokerActor":
        return await _coordinator(self._history)

    def _join(self) -> Join:
        return Join(
            member_id=self._member_id,
            instance_id=None,
            client_id=self._name,
            client_host="simulated",
            session_timeout_ms=self._history.scene.session_ms,
            rebalance_timeout_ms=self._history.scene.rebalance_ms,
            protocol_type="consumer",
            protocols=[Protocol("range", b"")],
            id_required=True,
            skips_assignment=False,
        )

    def _plan(self, joined: Joined) -> dict[str, bytes]:
        """Partitions dealt out in turn."""
        members = sorted(member.member_id for member in joined.members)
        count = len(self._history.partitions())
        return {
            member: msgspec.msgpack.encode(list(range(number, count, len(members))))
            for number, member in enumerate(members)
        }


class StrangerActor:
    """Deletes the group and commits without a generation: both may succeed only when nobody is in it."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self._offset = 0

    async def live(self) -> None:
        while True:
            await asyncio.sleep(self._history.world.random.uniform(0.1, 0.8))
            try:
                await self._act()
            except (RetryableError, NotCoordinator):
                continue

    async def _act(self) -> None:
        history, topic = self._history, self._history.topic
        coordinator = await _coordinator(history)
        asked_s = history.loop.time()
        if topic is None or history.world.chance(0.5):
            what, error = "DeleteGroups", await coordinator.coordinate(lambda group: group.delete(GROUP))
        else:
            self._offset += 1
            place = StreamPartition(topic.topic_id, _NOBODYS)
            offsets = {place: CommittedOffset(self._offset, 0, "stranger", 0)}
            what = "a commit without a generation"
            error = await coordinator.coordinate(lambda group: group.commit(GROUP, "", None, -1, offsets))
        if error is GroupError.NONE:
            history.world.trace(f"stranger: {what} succeeds")
            history.membership.passed_for_empty(f"{what} succeeds", asked_s)


async def _coordinator(history: "History") -> "BrokerActor":
    if history.world.chance(_STRAYS):
        return history.broker()
    found = await history.broker().coordinate(lambda group: group.find(GROUP))
    return history.broker_numbered(found.broker_id)
