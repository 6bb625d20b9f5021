"""What has lapsed of groups goes away: offsets that nobody has used for long, and those of topics that are gone; rows
that a coordinator which died left for a name that nobody uses.

As in Kafka (`offsets.retention.minutes`): while a group has members its offsets stay. Without members they go when the
retention time has passed since the last one left, or since they were committed if that is later; where there never
were members, since they were committed. A group of which nothing is left is gone.

Each broker looks after the groups that it has, and after those in nobody's hands for which it is the one to ask, a
bounded number at a time. A group whose coordinator died with all its members is taken over, so that their sessions end.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Final
from uuid import UUID

from lakestream.coordination.groups.leases import GroupLeases, Held
from lakestream.coordination.settings import GroupSettings
from lakestream.errors import LakestreamError, NotCoordinator
from lakestream.metadata.brokers import Broker, rendezvous
from lakestream.metadata.groups import Contents, lease_holder, names_from, read_contents
from lakestream.metadata.shares import forget_shares, share_partitions
from lakestream.model import StreamPartition
from lakestream.stream.engine import StreamEngine

log = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0
"""Between two looks that belong to one round."""


class Sweeper:
    def __init__(self, engine: StreamEngine, leases: GroupLeases, settings: GroupSettings) -> None:
        self._engine = engine
        self._store = engine.store
        self._leases = leases
        self._settings = settings
        self._next = ""
        """The name from which the next look goes on."""

    async def sweep_forever(self) -> None:
        ended = True
        while True:
            await asyncio.sleep(self._settings.sweep_interval_ms / 1000 if ended else _PAUSE_S)
            try:
                ended = await self.sweep()
            except LakestreamError as error:
                ended = True
                log.warning("the groups are looked through again later: %s", error)

    async def sweep(self) -> bool:
        """One look at a bounded number of groups. True: it came to the end of the list, and the next begins anew."""
        limit = self._settings.max_swept_groups
        names = await names_from(self._store, self._next, limit)
        ended = len(names) < limit
        self._next = "" if ended else names[-1] + "\0"
        brokers = await self._engine.brokers.live() or [self._engine.broker]
        for name in names:
            if self._leases.has(name) or self._is_mine(name, brokers):
                try:
                    await self._sweep_one(name)
                except NotCoordinator:
                    continue
                except LakestreamError as error:
                    log.warning("group %s is swept later: %s", name, error)
        return ended

    def _is_mine(self, group: str, brokers: Collection[Broker]) -> bool:
        return rendezvous(f"group/{group}", list(brokers)) == self._engine.broker

    async def _sweep_one(self, group: str) -> None:
        had = self._leases.has(group)
        if not had and await lease_holder(self._store, group) is not None:
            return
        contents = await read_contents(self._store, group)
        has_members = contents.state.phase != "EMPTY"
        if contents.has_pending and not has_members:
            # What a transaction commits counts from its end on.
            return
        lapsed = await self.lapsed(contents, has_members=has_members)
        in_use = has_members or await self._shares(group, contents)
        is_idle = not in_use and not contents.offsets.keys() - lapsed
        is_orphaned = has_members and not had
        if not (lapsed or is_idle or is_orphaned):
            return
        held = await self._leases.open(group)
        async with held.lock:
            if held.dropped:
                return
            since_s = asyncio.get_running_loop().time()
            try:
                await self._clear(held)
            finally:
                # Members waited for the store as they do for a save; one that is due counts this time itself.
                if held.unsaved_since_ms is None:
                    held.machine.postpone((asyncio.get_running_loop().time() - since_s) * 1000)
        if not had and held.is_empty:
            await self._leases.give_back(held)

    async def _clear(self, held: Held) -> None:
        """Under the group's lock, on what is stored now: nobody commits meanwhile."""
        machine = held.machine
        await held.commits.drained()
        contents = await read_contents(self._store, held.name)
        in_use = bool(machine.members or machine.pending or machine.unsaved) or await self._shares(held.name, contents)
        lapsed = await self.lapsed(contents, has_members=in_use)
        if contents.has_pending:
            in_use = True
        if not in_use and contents.is_stored and not contents.offsets.keys() - lapsed:
            log.info("group %s has neither members nor offsets that count any more: it is gone", held.name)
            try:
                await held.rows.delete()
            finally:
                await self._leases.give_back(held)
        elif lapsed:
            log.info("%d offsets of group %s have lapsed", len(lapsed), held.name)
            await held.rows.drop_offsets(lapsed)

    async def _shares(self, group: str, contents: Contents) -> bool:
        """Whether it is a share group that is on its way through some topic. Of topics that are gone nothing stays."""
        if contents.state.kind != "share":
            return False
        partitions = await share_partitions(self._store, group)
        gone = await self._gone({each.topic_id for each in partitions})
        await forget_shares(self._store, group, [each for each in partitions if each.topic_id in gone])
        return any(each.topic_id not in gone for each in partitions)

    async def lapsed(self, contents: Contents, *, has_members: bool) -> set[StreamPartition]:
        """The offsets that nobody can want any more."""
        gone = await self._gone({partition.topic_id for partition in contents.offsets})
        lapsed = {partition for partition in contents.offsets if partition.topic_id in gone}
        if has_members:
            return lapsed
        before_ms = self._engine.runtime.clock.now_ms() - self._settings.offsets_retention_ms
        empty_since_ms = contents.state.changed_ms
        return lapsed | {
            partition
            for partition, offset in contents.offsets.items()
            if max(empty_since_ms, offset.committed_ms) <= before_ms
        }

    async def _gone(self, topic_ids: Iterable[UUID]) -> set[UUID]:
        """Those that are not on the topic list: an id that was deleted never comes back."""
        wanted = set(topic_ids)
        return wanted - (await self._engine.topics.find_ids(wanted)).keys() if wanted else set()
