"""Share groups' records, for callers: what every front door calls, with the caller's principal.

Members need to read the group and the topics. Methods raise `NotAuthorized` for the group; topics are answered one by
one.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Final
from uuid import UUID

from lakestream.access import Authorizer, Operation, Principal, ResourceKind, check
from lakestream.coordination.groups import GroupCoordinator
from lakestream.coordination.shares.asking import AskedPartition, ShareReader
from lakestream.coordination.shares.fetching import ShareFetcher
from lakestream.coordination.shares.model import (
    Ack,
    AckError,
    AckOutcome,
    Asked,
    SessionError,
    SharedRecords,
    ShareFetched,
    ShareFetchRequest,
)
from lakestream.coordination.shares.offsets import ShareOffsets
from lakestream.coordination.shares.partition import SharePartitions
from lakestream.coordination.shares.ranges import fault_of
from lakestream.coordination.shares.sessions import BEGINS, ENDS, SessionKey, ShareSession, ShareSessions
from lakestream.errors import LakestreamError, Unavailable, UnknownStream
from lakestream.metadata.brokers import Broker
from lakestream.metadata.shares import SharePartitionKey
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.stream.engine import StreamEngine
from lakestream.stream.rights import TopicRights

log = logging.getLogger(__name__)

_MOST_PARTITIONS: Final = 20_000
"""Of one session. Members of a group have some of a topic's; nobody needs so many."""


class ShareGroups:
    """`offsets` has what operators do."""

    def __init__(self, engine: StreamEngine, authorizer: Authorizer, coordinator: GroupCoordinator) -> None:
        configured = coordinator.configured
        self.offsets = ShareOffsets(engine, authorizer, coordinator)
        self._engine = engine
        self._authorizer = authorizer
        self._rights = TopicRights(engine.topics, authorizer)
        self._configured = configured
        self._fetcher = ShareFetcher(engine)
        self._partitions = SharePartitions(engine.store)
        self._sessions = ShareSessions(configured.usual.share_max_sessions)
        self._releases: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def find(self, principal: Principal) -> Broker:
        """Who keeps the state of a share partition. Any broker does, and this one answers; only brokers may ask."""
        check(self._authorizer, principal, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
        return self._engine.broker

    async def stop(self) -> None:
        """What members of this broker have stays theirs: they go on at another."""
        self._is_stopping = True
        if self._releases:
            await asyncio.wait(self._releases)

    async def fetch(self, principal: Principal, connection: object, request: ShareFetchRequest) -> ShareFetched:
        """`connection`: whatever tells one from another. Of a session that goes on only what is new is told."""
        check(self._authorizer, principal, Operation.READ, ResourceKind.GROUP, request.group)
        key = (request.group, request.member_id)
        acks = request.acks
        if request.session_epoch == BEGINS:
            if any(acks.values()):
                return _refused(SessionError.INVALID_REQUEST, "a session that begins has nothing to acknowledge")
            session = self._sessions.begin(key, connection)
        elif request.session_epoch == ENDS:
            return await self._end(principal, key, acks, renews=request.renews)
        else:
            session = self._sessions.go_on(key, request.session_epoch)
        if isinstance(session, SessionError):
            return _refused(session)
        is_new = set(request.added) - session.partitions.keys()
        session.change(request.added, request.forgotten)
        if len(session.partitions) > _MOST_PARTITIONS:
            self._sessions.end(key)
            return _refused(SessionError.LIMIT_REACHED, f"a session has {_MOST_PARTITIONS} partitions at the most")
        settings = await self._configured.of(request.group)
        reader = ShareReader(
            request.member_id, settings, request.max_records, request.max_bytes, is_exact=request.is_exact
        )
        if request.renews or request.is_turned_away or request.max_records <= 0:
            only = await self._tell(principal, reader, request.group, acks, renews=request.renews)
            if request.is_turned_away:
                away = Unavailable("this broker is stopping: go on at another")
                only = merged([*only, *(SharedRecords(each, error=away) for each in session.partitions)])
            return ShareFetched(lock_ms=settings.share_record_lock_ms, partitions=only)
        asked = list(session.partitions)
        wanted, others = await self._wanted(principal, request.group, [*asked, *acks], acks, is_new)
        read = [each for each in wanted if each.asked in session.partitions]
        apart = [each for each in wanted if each.asked not in session.partitions]
        told = await asyncio.gather(*(self._fetcher.tell(reader, each) for each in apart))
        others += [SharedRecords(each.asked, ack=outcome) for each, outcome in zip(apart, told, strict=True)]
        found = merged([*others, *await self._fetcher.fetch(reader, read, 0 if others else request.max_wait_ms)])
        session.served(each.asked for each in found if each.acquired)
        if request.session_epoch == BEGINS:
            silent = session.partitions.keys() - {each.asked for each in found}
            found += [SharedRecords(each) for each in asked if each in silent]
        return ShareFetched(lock_ms=settings.share_record_lock_ms, partitions=found)

    async def acknowledge(
        self,
        principal: Principal,
        group: str,
        member_id: str,
        session_epoch: int,
        acks: Mapping[Asked, Sequence[Ack]],
        *,
        renews: bool,
    ) -> ShareFetched:
        check(self._authorizer, principal, Operation.READ, ResourceKind.GROUP, group)
        key = (group, member_id)
        if session_epoch == BEGINS:
            return _refused(SessionError.INVALID_EPOCH)
        if session_epoch == ENDS:
            return await self._end(principal, key, acks, renews=renews)
        session = self._sessions.go_on(key, session_epoch)
        if isinstance(session, SessionError):
            return _refused(session)
        settings = await self._configured.of(group)
        told = await self._tell(principal, ShareReader(member_id, settings), group, acks, renews=renews)
        return ShareFetched(lock_ms=settings.share_record_lock_ms, partitions=told)

    def connection_lost(self, connection: object) -> None:
        """What the members behind it have is free for others. Not when the broker stops: then they go on elsewhere."""
        sessions = self._sessions.lost(connection)
        if sessions and not self._is_stopping:
            task = asyncio.get_running_loop().create_task(self._release(sessions))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)

    async def _release(self, sessions: Collection[ShareSession]) -> None:
        for session in sessions:
            group, member_id = session.key
            try:
                reader = ShareReader(member_id, await self._configured.of(group))
            except LakestreamError as error:
                log.warning("what member %s of group %s has stays locked for its time: %s", member_id, group, error)
                continue
            await asyncio.gather(*(self._leave(reader, group, asked, ()) for asked in session.partitions))

    async def _leave(self, reader: ShareReader, group: str, asked: Asked, acks: Sequence[Ack]) -> AckOutcome:
        partition = _partition_of(asked)
        if partition is None:
            return AckOutcome(None)
        live = self._partitions.get(SharePartitionKey(group, partition))
        return await self._fetcher.tell(reader, AskedPartition(asked, live, acks=acks), leaves=True)

    async def _end(
        self, principal: Principal, key: SessionKey, acks: Mapping[Asked, Sequence[Ack]], *, renews: bool
    ) -> ShareFetched:
        session = self._sessions.end(key)
        if session is None:
            return _refused(SessionError.NOT_FOUND)
        group, member_id = key
        settings = await self._configured.of(group)
        reader = ShareReader(member_id, settings)
        told = await self._tell(principal, reader, group, acks, renews=renews)
        await asyncio.gather(*(self._leave(reader, group, asked, ()) for asked in session.partitions))
        return ShareFetched(lock_ms=settings.share_record_lock_ms, partitions=told)

    async def _tell(
        self,
        principal: Principal,
        reader: ShareReader,
        group: str,
        acks: Mapping[Asked, Sequence[Ack]],
        *,
        renews: bool,
    ) -> list[SharedRecords]:
        wanted, others = await self._wanted(principal, group, acks, acks, frozenset(), renews=renews)
        outcomes = await asyncio.gather(*(self._fetcher.tell(reader, each) for each in wanted))
        told = [SharedRecords(each.asked, ack=outcome) for each, outcome in zip(wanted, outcomes, strict=True)]
        return merged([*others, *told])

    async def _wanted(
        self,
        principal: Principal,
        group: str,
        asked: Iterable[Asked],
        acks: Mapping[Asked, Sequence[Ack]],
        is_new: Set[Asked],
        *,
        renews: bool = False,
    ) -> tuple[list[AskedPartition], list[SharedRecords]]:
        """Those that can be asked for, and what is to be said of the others."""
        every = list(dict.fromkeys(asked))
        found = await self._rights.find_partitions(principal, Operation.READ, every)
        wanted, others = [], []
        for each in every:
            topic, told = found[each[0]], acks.get(each, ())
            if isinstance(topic, Topic) and not 0 <= each[1] < topic.partitions:
                topic = UnknownStream(f"topic {topic.name} has no partition {each[1]}")
            if isinstance(topic, LakestreamError):
                ack = AckOutcome(topic, str(topic)) if told else None
                others.append(SharedRecords(each, error=topic, ack=ack))
                continue
            fault = fault_of(told, renews=renews)
            if fault:
                others.append(SharedRecords(each, ack=AckOutcome(AckError.INVALID_REQUEST, fault)))
                told = ()
            live = self._partitions.get(SharePartitionKey(group, StreamPartition(topic.topic_id, each[1])))
            wanted.append(AskedPartition(each, live, topic.options.compression, told, is_new=each in is_new))
        return wanted, others


def merged(found: Iterable[SharedRecords]) -> list[SharedRecords]:
    """One for each partition."""
    by_asked: dict[Asked, SharedRecords] = {}
    for each in found:
        known = by_asked.setdefault(each.asked, each)
        if known is not each:
            by_asked[each.asked] = SharedRecords(
                each.asked, each.parts, each.acquired, known.error or each.error, known.ack or each.ack
            )
    return list(by_asked.values())


def _partition_of(asked: Asked) -> StreamPartition | None:
    topic_id, index = asked
    return StreamPartition(topic_id, index) if isinstance(topic_id, UUID) else None


def _refused(error: SessionError, message: str = "") -> ShareFetched:
    return ShareFetched(error, message)
