"""The cluster as such, for callers: what its owners look at."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from lakestream.access import Authorizer, Operation, Principal, ResourceKind, allowed, check
from lakestream.errors import LakestreamError, RequestError, UnknownStream
from lakestream.metadata.quotas import Quota
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.stream.engine import StreamEngine
from lakestream.stream.quotas import CONSUMED, PRODUCED, QuotaChange, check_change
from lakestream.stream.requests import KnownProducer
from lakestream.stream.rights import TopicRights


class StreamCluster:
    def __init__(self, engine: StreamEngine, authorizer: Authorizer, rights: TopicRights) -> None:
        self._engine = engine
        self._authorizer = authorizer
        self._rights = rights

    @property
    def broker_id(self) -> int:
        """Of this broker."""
        return self._engine.broker_id

    @property
    def bucket_url(self) -> str:
        """Where everything is stored."""
        return self._engine.bucket_url

    def now_ms(self) -> int:
        return self._engine.runtime.clock.now_ms()

    def check(self, principal: Principal, operation: Operation) -> None:
        """Whether the caller may do that with the cluster. Raises `NotAuthorized`."""
        check(self._authorizer, principal, operation, ResourceKind.CLUSTER)

    def check_transactional_id(self, principal: Principal, transactional_id: str) -> None:
        """Whether the caller may look at it. Raises `NotAuthorized`."""
        check(self._authorizer, principal, Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, transactional_id)

    def allowed(self, principal: Principal) -> Sequence[Operation]:
        """What the caller may do with the cluster."""
        return allowed(self._authorizer, principal, ResourceKind.CLUSTER)

    def may_write(self, principal: Principal) -> bool:
        """Whether the caller may write any topic at all."""
        return self._authorizer.allows_any(principal, Operation.WRITE, ResourceKind.TOPIC)

    async def partition_sizes(
        self,
        principal: Principal,
        wanted: Mapping[str, Collection[int]] | None,
        told: Callable[[Topic, int], bool],
    ) -> dict[str, dict[int, int]]:
        """How many bytes partitions take, those of `wanted` (None: all) that are there and to be told. Raises
        `NotAuthorized`."""
        self.check(principal, Operation.DESCRIBE)
        topics = (
            list(await self._engine.topics.list())
            if wanted is None
            else [each for each in (await self._engine.topics.find_names(wanted)).values() if isinstance(each, Topic)]
        )
        sizes: dict[str, dict[int, int]] = {}
        for topic in topics:
            asked = range(topic.partitions) if wanted is None else wanted[topic.name]
            indexes = [index for index in range(topic.partitions) if index in asked and told(topic, index)]
            if indexes:
                sizes[topic.name] = await self._engine.partition_sizes(topic, indexes)
        return sizes

    async def quotas(self, principal: Principal) -> Sequence[Quota]:
        """Those of clients. Raises `NotAuthorized`."""
        self.check(principal, Operation.DESCRIBE_CONFIGS)
        return await self._engine.quotas.list()

    async def alter_quotas(
        self, principal: Principal, changes: Sequence[QuotaChange], *, dry_run: bool = False
    ) -> list[RequestError | None]:
        """What is wrong with each change; those that are right are made, together. Raises `NotAuthorized`."""
        self.check(principal, Operation.ALTER_CONFIGS)
        found = [_fault(change) for change in changes]
        right = [change for change, fault in zip(changes, found, strict=True) if fault is None]
        if right and not dry_run:
            await self._engine.quotas.change(right)
        return found

    def produced(self, client_id: str, size_bytes: int) -> int:
        """A client has sent so many bytes of records: for how many milliseconds it is not to be listened to."""
        return self._engine.quotas.charge(PRODUCED, client_id, size_bytes, _now_s())

    def consumed(self, client_id: str, size_bytes: int) -> int:
        """The same for what it is sent."""
        return self._engine.quotas.charge(CONSUMED, client_id, size_bytes, _now_s())

    async def producers(
        self, principal: Principal, asked: Sequence[tuple[str, int]]
    ) -> list[list[KnownProducer] | LakestreamError]:
        """The idempotent producers that each partition remembers, for those who may read it."""
        found = await self._rights.find_now(principal, Operation.READ, [name for name, _ in asked])

        async def look(name: str, index: int) -> list[KnownProducer] | LakestreamError:
            topic = found[name]
            if isinstance(topic, LakestreamError):
                return topic
            if not 0 <= index < topic.partitions:
                return UnknownStream(f"topic {name} has no partition {index}")
            try:
                return await self._engine.producers(StreamPartition(topic.topic_id, index))
            except LakestreamError as error:
                return error

        return await asyncio.gather(*(look(name, index) for name, index in asked))


def _fault(change: QuotaChange) -> RequestError | None:
    try:
        check_change(change)
    except RequestError as error:
        return error
    return None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
