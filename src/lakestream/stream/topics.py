"""Topics as such, for callers: list, describe, create, alter, delete."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from lakestream.access import Operation, Principal, ResourceKind, denied
from lakestream.catalog.binding import ALIAS
from lakestream.errors import InvalidAssignment, InvalidName, LakestreamError, StreamExists, UnknownStream
from lakestream.metadata.topics.list import Topic, check_name
from lakestream.metadata.topics.options import is_disk
from lakestream.metadata.topics.tables import table_name
from lakestream.stream.engine import StreamEngine
from lakestream.stream.requests import TopicKey
from lakestream.stream.rights import FoundTopics, TopicRights
from lakestream.stream.values import changes_values, check_external, check_values
from lakestream.table.shape import TableShape


class StreamTopics:
    def __init__(self, engine: StreamEngine, rights: TopicRights) -> None:
        self._engine = engine
        self._rights = rights

    @property
    def max_batch_bytes(self) -> int:
        """Of a topic that does not say."""
        return self._engine.max_batch_bytes

    def allowed(self, principal: Principal, name: str) -> Sequence[Operation]:
        """What the caller may do with a topic of that name."""
        return self._rights.allowed(principal, name)

    async def list(self, principal: Principal) -> list[Topic]:
        """Those that the caller may describe."""
        topics = await self._engine.topics.list()
        return [topic for topic in topics if self._rights.allows(principal, Operation.DESCRIBE, topic.name)]

    async def describe(
        self, principal: Principal, topics: Iterable[TopicKey], *, created_with: int | None = None
    ) -> FoundTopics:
        """As they are now. `created_with`: so many partitions a topic gets that is not there, if the caller may create
        it; somebody else doing the same is no error."""
        found = await self._rights.find_now(principal, Operation.DESCRIBE, topics)
        missing = []
        for key, topic in found.items():
            if isinstance(key, str) and isinstance(topic, UnknownStream):
                try:
                    check_name(key)
                    missing.append(key)
                except InvalidName as error:
                    found[key] = error
        if created_with is not None and missing:
            made = await asyncio.gather(*(self._made(principal, name, created_with) for name in missing))
            found.update(zip(missing, made, strict=True))
        return found

    async def _made(self, principal: Principal, name: str, partitions: int) -> Topic | LakestreamError:
        try:
            return await self.create(principal, name, partitions, {})
        except StreamExists:
            return (await self._rights.find_now(principal, Operation.DESCRIBE, [name]))[name]
        except LakestreamError as error:
            return error

    async def create(self, principal: Principal, name: str, partitions: int, configs: dict[str, str]) -> Topic:
        """Raises `NotAuthorized`, `StreamExists`, `InvalidStream`, `InvalidSetting`."""
        self._check_create(principal, name, configs)
        return await self._engine.create_topic(name, partitions, configs)

    async def check_new(self, principal: Principal, name: str, partitions: int, configs: dict[str, str]) -> None:
        """Raises what `create` would, as far as that can be known before. Changes nothing."""
        self._check_create(principal, name, configs)
        self._engine.check_profile(configs)
        await self._engine.topics.check_new(name, partitions, configs)

    def _check_create(self, principal: Principal, name: str, configs: Mapping[str, str]) -> None:
        """Whoever makes a topic of a table that is there needs to be allowed to write that table, too."""
        if not self._rights.allows_creating(principal, name):
            raise denied(principal, Operation.CREATE, ResourceKind.TOPIC, name)
        if self._engine.has_external_catalog:
            check_external({}, configs)
        alias = configs.get(ALIAS)
        if alias:
            table = str(table_name("", alias))
            if not self._rights.allows(principal, Operation.WRITE, table):
                raise denied(principal, Operation.WRITE, ResourceKind.TOPIC, table)

    async def grow(
        self,
        principal: Principal,
        name: str,
        partitions: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        dry_run: bool = False,
    ) -> Topic:
        """Gives the topic so many partitions in all. `assignments`: brokers of the new ones, which are checked and do
        not count further. Raises `NotAuthorized`, `UnknownStream`, `InvalidPartitions`, `InvalidAssignment`."""
        if not self._rights.allows(principal, Operation.ALTER, name):
            raise denied(principal, Operation.ALTER, ResourceKind.TOPIC, name)
        if assignments is not None:
            # Whether the topic can grow is told before anything else that is wrong.
            await self._engine.grow_topic(name, partitions, dry_run=True)
            present = (await self._rights.find_now(principal, Operation.ALTER, [name]))[name]
            if isinstance(present, LakestreamError):
                raise present
            await self.check_assignments(principal, assignments, partitions - present.partitions)
        return await self._engine.grow_topic(name, partitions, dry_run=dry_run)

    async def check_assignments(
        self, principal: Principal, assignments: Sequence[Sequence[int]], partitions: int
    ) -> None:
        """Whether so many partitions may be assigned to these brokers. Raises `InvalidAssignment`."""
        if len(assignments) != partitions:
            raise InvalidAssignment(f"{partitions} partitions are to be made, and {len(assignments)} are assigned")
        live = await self._engine.brokers.live() or [self._engine.broker]
        known = {broker.broker_id for broker in live}
        for brokers in assignments:
            if not brokers:
                raise InvalidAssignment("a partition is assigned to no broker: name at least one for each")
            if len(set(brokers)) < len(brokers):
                raise InvalidAssignment(f"a partition is assigned to a broker twice: {_listed(brokers)}")
            if not known.issuperset(brokers):
                raise InvalidAssignment(
                    f"a partition is assigned to {_listed(brokers)}, and the brokers that live are {_listed(known)}"
                )
            if len(brokers) != len(assignments[0]):
                raise InvalidAssignment("assign each partition to as many brokers as the others")

    async def alter(
        self,
        principal: Principal,
        name: str,
        change: Callable[[Mapping[str, str]], dict[str, str]],
        *,
        dry_run: bool = False,
    ) -> Topic:
        """Gives the topic the settings that `change` makes of its present ones. Raises `NotAuthorized`,
        `UnknownStream`, `InvalidSetting`, and what `change` raises."""
        if not self._rights.allows(principal, Operation.ALTER_CONFIGS, name):
            raise denied(principal, Operation.ALTER_CONFIGS, ResourceKind.TOPIC, name)

        shape = await self._shape(name, change)

        def checked(present: Mapping[str, str]) -> dict[str, str]:
            changed = change(present)
            if changes_values(present, changed):
                check_values(name, present, changed, shape)
            if self._engine.has_external_catalog:
                check_external(present, changed)
            if not is_disk(present):
                self._engine.check_profile(changed)
            return changed

        return await self._engine.topics.alter(name, checked, dry_run=dry_run)

    async def _shape(self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]]) -> TableShape | None:
        """Of the topic's table, if the change is about its values and there is one."""
        topic = (await self._engine.topics.by_names([name])).get(name)
        if topic is None or not changes_values(topic.configs, change(topic.configs)):
            return None
        return await self._engine.shape_of(topic.topic_id)

    async def delete(self, principal: Principal, topic: str | UUID) -> Topic:
        """Returns when nobody can append to or read the topic any more; its table stays, detached. Raises
        `NotAuthorized`, `UnknownStream`, `CorruptObject`."""
        # Never from the cache: a name must mean the topic that has it now.
        found = (await self._rights.find_now(principal, Operation.DELETE, [topic]))[topic]
        if isinstance(found, LakestreamError):
            raise found
        await self._engine.delete_topic(found.topic_id)
        return found


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))
