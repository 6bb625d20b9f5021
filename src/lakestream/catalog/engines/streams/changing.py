"""What engines do to the table of a living topic, and what becomes of its topic: settings, rename, drop.

Each is a chain of steps that can be done again. A topic's settings are the topic's alone: its table shows them among
its properties, and stores none.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from lakestream.access import Operation, Principal
from lakestream.catalog import binding
from lakestream.catalog.binding import ALIAS
from lakestream.catalog.engines.properties import is_on
from lakestream.catalog.engines.rights import TableRights
from lakestream.catalog.engines.streams.wish import PARTITIONS, VALUE_SCHEMA, StreamDefaults
from lakestream.catalog.engines.tables import EngineTables
from lakestream.catalog.staging import Current
from lakestream.errors import (
    InvalidSetting,
    RegistryRefused,
    RequestError,
    TableExists,
    TableRefused,
    UnknownNamespace,
    UnknownStream,
)
from lakestream.metadata.names.pointers import TableName
from lakestream.metadata.topics.growing import check_growth, grow
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.metadata.topics.option_list import KEY, STREAM, VALUE_SUBJECT
from lakestream.metadata.topics.options import is_disk, is_setting
from lakestream.metadata.topics.tables import check_alias, table_name
from lakestream.schemas.registry.model import parse_subject
from lakestream.schemas.registry.registry import SchemaRegistry

_SETTLED: Final = (VALUE_SCHEMA,)
_GC: Final = "gc.enabled"


@dataclass(frozen=True, slots=True)
class SettingChanges:
    """Of a topic, by a commit to its table. `partitions`: how many there shall be; 0: as many as there are."""

    given: Mapping[str, str]
    removed: frozenset[str]
    partitions: int = 0

    def __bool__(self) -> bool:
        return bool(self.given or self.removed or self.partitions)

    def applied(self, present: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in {**present, **self.given}.items() if name not in self.removed}

    def with_key(self, key: str) -> "SettingChanges":
        """The same with another key, unless they say one."""
        return replace(self, given={KEY: key, **self.given})


NO_SETTINGS: Final = SettingChanges({}, frozenset())


class StreamChanges:
    def __init__(
        self,
        tables: EngineTables,
        topics: Topics,
        rights: TableRights,
        registry: SchemaRegistry | None,
        defaults: StreamDefaults,
    ) -> None:
        self._tables = tables
        self._pointers = tables.commits.pointers
        self._topics = topics
        self._rights = rights
        self._registry = registry
        self._defaults = defaults

    async def topic_of(self, table_id: UUID) -> Topic | None:
        """None: it is no table of a living topic."""
        return (await self._topics.by_ids([table_id])).get(table_id)

    async def told(self, current: Current) -> dict[str, str]:
        """What a stream's table shows of its topic. Nothing of it is stored with the table."""
        topic = await self.topic_of(current.table_id) if current.row.pointer.bound else None
        return {} if topic is None else {**topic.configs, PARTITIONS: str(topic.partitions)}

    # Settings

    async def checked(
        self, principal: Principal, topic: Topic, updates: Sequence[TableUpdate]
    ) -> tuple[list[TableUpdate], SettingChanges]:
        """The updates without what they say of the topic, and that, if it can be. Changes nothing. Raises
        `NotAuthorized`, `InvalidSetting`, `InvalidPartitions`."""
        left, changes = _split(updates, topic)
        if changes.given or changes.removed:
            self._rights.check_topic(principal, Operation.ALTER_CONFIGS, topic.name)
            await self._topics.alter(topic.name, self._change(changes), dry_run=True)
        if changes.partitions:
            self._rights.check_topic(principal, Operation.ALTER, topic.name)
            check_growth(topic, changes.partitions)
        return left, changes

    async def settle(self, topic: Topic, changes: SettingChanges) -> None:
        """Gives the topic what was `checked`."""
        if changes.given or changes.removed:
            await self._topics.alter(topic.name, self._change(changes))
        if changes.partitions:
            await grow(self._tables.commits.store, self._topics, topic.name, changes.partitions)

    def _change(self, changes: SettingChanges) -> Callable[[Mapping[str, str]], dict[str, str]]:
        def change(present: Mapping[str, str]) -> dict[str, str]:
            wanted = changes.applied(present)
            if is_disk(wanted) and not is_disk(present):
                self._defaults.check_profile(wanted)
            return wanted

        return change

    # Rename

    async def rename(self, topic: Topic, to: TableName) -> None:
        """The setting first: as long as the table has its old name, the same statement ends what stopped half-way.
        Raises `TableExists`, `UnknownNamespace`, `RequestError`; nothing has changed then."""
        _check_owned(topic)
        try:
            alias = check_alias(str(to))
        except ValueError as error:
            raise RequestError(f"{to} cannot be a stream's table: {error}") from error
        before = topic.configs.get(ALIAS)
        await self._call(topic, None if table_name(topic.name) == to else alias)
        try:
            await self._pointers.rename(topic.topic_id, to)
        except (TableExists, UnknownNamespace):
            await self._call(topic, before)
            raise

    async def _call(self, topic: Topic, alias: str | None) -> None:
        """None: after the topic."""

        def change(present: Mapping[str, str]) -> dict[str, str]:
            others = {name: value for name, value in present.items() if name != ALIAS}
            return others if alias is None else {**others, ALIAS: alias}

        await self._topics.alter(topic.name, change, renames_table=True)

    # Drop

    async def droppable(self, table_id: UUID) -> Topic | None:
        """The living topic whose table it is, or one that is being dropped; None: it is no topic's."""
        found = await self.topic_of(table_id)
        return found or next((topic for topic in await self._topics.gone() if topic.topic_id == table_id), None)

    async def drop(self, principal: Principal, topic: Topic, *, purge: bool) -> None:
        """The topic goes as if it was deleted, and its subject is hidden, as a registry hides what can be restored. The
        table keeps its rows, detached, unless it is to be purged. Whoever drops it again finishes what stops half-way,
        or a broker does, which purges nothing."""
        _check_owned(topic)
        subject = topic.options.value_subject or f"{topic.name}-value"
        current = await self._tables.commits.load(topic.topic_id)
        if purge and current is not None and not is_on(current.metadata.properties, _GC, default=True):
            raise TableRefused(f"its table has {_GC}=false: its files may belong to others and cannot be purged")
        if VALUE_SUBJECT not in topic.configs:
            await self._hide(principal, subject)
        with suppress(UnknownStream):
            await self._topics.delete(topic.topic_id)
        await self._topics.drop_logs(topic)
        await binding.detach(self._pointers, topic.topic_id)
        await self._topics.finish_delete(topic)
        name = await self._pointers.name_of(topic.topic_id)
        if purge and name is not None:
            await self._tables.drop(name, purge=True)

    async def _hide(self, principal: Principal, subject: str) -> None:
        """A table of the same name may then begin with other columns."""
        try:
            if self._registry is not None:
                await self._registry.delete_subject(principal, parse_subject(subject), permanent=False)
        except RegistryRefused:
            return


def _check_owned(topic: Topic) -> None:
    if not topic.options.is_table_first:
        raise TableRefused(
            f"it is the table of a living topic: delete the topic {topic.name}, and the table is yours. With"
            f" {STREAM}=true of the topic, engines may drop and rename both"
        )


def _split(updates: Sequence[TableUpdate], topic: Topic) -> tuple[list[TableUpdate], SettingChanges]:
    left: list[TableUpdate] = []
    given: dict[str, str] = {}
    removed: set[str] = set()
    for update in updates:
        if isinstance(update, SetPropertiesUpdate):
            said = {name: value for name, value in update.updates.items() if _is_topics(name)}
            given |= said
            removed -= said.keys()
            if len(said) < len(update.updates) or not said:
                others = {name: value for name, value in update.updates.items() if name not in said}
                left.append(SetPropertiesUpdate(updates=others))
        elif isinstance(update, RemovePropertiesUpdate):
            gone = {name for name in update.removals if _is_topics(name)}
            removed |= gone
            given = {name: value for name, value in given.items() if name not in gone}
            if len(gone) < len(update.removals) or not gone:
                left.append(RemovePropertiesUpdate(removals=[name for name in update.removals if name not in gone]))
        else:
            left.append(update)
    settled = [name for name in (*given, *removed) if name in _SETTLED]
    if settled:
        raise InvalidSetting(f"{settled[0]} was settled when the table was made and cannot change")
    if PARTITIONS in removed:
        raise InvalidSetting(f"{PARTITIONS} cannot be unset: a topic has at least as many partitions as before")
    return left, SettingChanges(given, frozenset(removed), _partitions(given.pop(PARTITIONS, None), topic))


def _is_topics(name: str) -> bool:
    return is_setting(name) or name in (PARTITIONS, VALUE_SCHEMA)


def _partitions(text: str | None, topic: Topic) -> int:
    """0: as many as there are."""
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise InvalidSetting(f"{PARTITIONS}={text} cannot be: it takes a whole number")
    return 0 if int(text) == topic.partitions else int(text)
