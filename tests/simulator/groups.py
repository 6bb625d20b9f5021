"""Members of a consumer group: they join, share the partitions, read on from what was committed, commit, and leave."""

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from kio.schema.errors import ErrorCode

from lakestream.errors import NotCoordinator, RetryableError, UnknownStream
from lakestream.kafka.groups.model import Join, Joined, Protocol, Sync
from lakestream.metadata.groups import CommittedOffset
from lakestream.model import StreamPartition

if TYPE_CHECKING:
    from simulator.actors import BrokerActor
    from simulator.history import History

GROUP: Final = "readers"
_STRAYS: Final = 0.2
"""How often a member asks some broker and not the one it was told: what clients know of coordinators is often old."""


class MemberActor:
    """Finds its coordinator anew whenever an answer is not what it hoped for."""

    def __init__(self, history: "History", number: int) -> None:
        self._history = history
        self._name = f"member{number}"
        self._member_id = ""
        self._positions: dict[StreamPartition, int] = {}

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
        coordinator = await self._find()
        joined = await coordinator.coordinate(lambda group: group.join(GROUP, self._join()))
        if joined.error is ErrorCode.member_id_required:
            self._member_id = joined.member_id
            return
        if joined.error is not ErrorCode.none:
            self._member_id = ""
            return
        self._member_id = joined.member_id
        plan = self._plan(joined) if joined.leader == joined.member_id else {}
        sync = Sync(self._member_id, None, joined.generation, "consumer", "range", plan)
        synced = await coordinator.coordinate(lambda group: group.sync(GROUP, sync))
        if synced.error is not ErrorCode.none:
            return
        mine = msgspec.msgpack.decode(synced.assignment, type=list[int]) if synced.assignment else []
        self._history.world.trace(f"{self._name} has {mine} in generation {joined.generation}")
        await self._read(coordinator, joined.generation, mine)

    async def _read(self, coordinator: "BrokerActor", generation: int, mine: list[int]) -> None:
        history, random = self._history, self._history.world.random
        committed = await coordinator.coordinate(lambda group: group.offsets(GROUP))
        partitions = [partition for partition in history.partitions() if partition.index in mine]
        positions = self._positions
        for partition in partitions:
            known = committed[partition].offset if partition in committed else 0
            # A commit of its own that it gave up may land yet: a member never asks to go back.
            positions[partition] = max(positions.get(partition, 0), known)
        for _ in range(random.randint(1, 6)):
            await asyncio.sleep(random.uniform(0.02, 0.4))
            error = await coordinator.coordinate(
                lambda group: group.heartbeat(GROUP, self._member_id, None, generation)
            )
            if error is not ErrorCode.none:
                return
            offsets: dict[StreamPartition, CommittedOffset] = {}
            for partition in partitions:
                positions[partition] += random.randint(0, 2)
                offsets[partition] = CommittedOffset(positions[partition], 0, "", 0)
            try:
                error = await coordinator.coordinate(
                    lambda group, offsets=offsets: group.commit(GROUP, self._member_id, None, generation, offsets)
                )
            except RetryableError:
                # As clients do that commit in the background: the next commit says it all again.
                continue
            if error is not ErrorCode.none:
                return
        if random.random() < 0.3:
            await coordinator.coordinate(lambda group: group.leave(GROUP, [(self._member_id, None)]))
            self._member_id = ""

    async def _find(self) -> "BrokerActor":
        history = self._history
        if history.world.chance(_STRAYS):
            return history.broker()
        found = await history.broker().coordinate(lambda group: group.find(GROUP))
        return history.broker_numbered(found.broker_id)

    def _join(self) -> Join:
        return Join(
            member_id=self._member_id,
            instance_id=None,
            client_id=self._name,
            client_host="simulated",
            session_timeout_ms=self._history.scene.session_ms,
            rebalance_timeout_ms=500,
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
