"""The catalog of tables, views and namespaces for outside engines: what every front door calls, with the caller's
principal. Methods raise `NotAuthorized` and what those of `EngineTables`, `EngineViews` and `Pointers` raise.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertCreate, TableRequirement, TableUpdate

from lakestream.access import Authorizer, Operation, Principal
from lakestream.catalog.engines.locations.naming import namespace_folder
from lakestream.catalog.engines.rights import TableRights
from lakestream.catalog.engines.streams.altering import ColumnChanges
from lakestream.catalog.engines.streams.changing import NO_SETTINGS, SettingChanges, StreamChanges
from lakestream.catalog.engines.streams.creating import StreamCreator
from lakestream.catalog.engines.streams.wish import STREAM_DEFAULTS, StreamDefaults
from lakestream.catalog.engines.tables import EngineTables, NewTable
from lakestream.catalog.engines.transactions import TableChange, commit_all
from lakestream.catalog.engines.views.changes import ViewUpdate
from lakestream.catalog.engines.views.views import CurrentView, NewView
from lakestream.catalog.staging import Current
from lakestream.errors import UnknownNamespace
from lakestream.metadata.names.pointers import Namespace, TableName
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.schemas.registry.registry import SchemaRegistry

T = TypeVar("T")
F = TypeVar("F")

_LOCATION = "location"


@dataclass(frozen=True, slots=True)
class _Checked:
    """What is left of a commit for the table, and what it says of the topic whose table it is."""

    updates: Sequence[TableUpdate]
    topic: Topic | None = None
    settings: SettingChanges = NO_SETTINGS
    shape_text: str | None = None


class EngineCatalog:
    """`registry`: where the schemas of streams are that engines make; None: in one of the owner's."""

    def __init__(
        self,
        tables: EngineTables,
        topics: Topics,
        authorizer: Authorizer,
        registry: SchemaRegistry | None = None,
        defaults: StreamDefaults = STREAM_DEFAULTS,
    ) -> None:
        self._tables = tables
        self._views = tables.views
        self._pointers = tables.commits.pointers
        self._rights = TableRights(self._pointers, topics, authorizer)
        self._creator = StreamCreator(tables, topics, self._rights, registry, defaults)
        self._streams = StreamChanges(tables, topics, self._rights, registry, defaults)
        self._columns = ColumnChanges(registry, tables.commits.runtime)

    @property
    def bucket_url(self) -> str:
        return self._tables.bucket_url

    def now_ms(self) -> int:
        return self._tables.commits.runtime.clock.now_ms()

    async def is_there(self) -> None:
        """For whoever looks after the process: raises if the store does not answer, tells nothing else."""
        await self._pointers.namespaces()

    def visible_topics(self, principal: Principal, found: Sequence[T], name_of: Callable[[T], str]) -> list[T]:
        """What is about topics that the caller may describe."""
        return [each for each in found if self._rights.allows_topic(principal, Operation.DESCRIBE, name_of(each))]

    def may_read(self, principal: Principal, topic: str) -> bool:
        """Whether the caller may read the topic, and so its table."""
        return self._rights.allows_topic(principal, Operation.READ, topic)

    # Tables

    async def tables(self, principal: Principal, namespace: Namespace) -> list[str]:
        """Names of the tables directly inside that the caller may describe, in order."""
        return await self._listed(principal, namespace, self._pointers.tables)

    async def _listed(
        self, principal: Principal, namespace: Namespace, read: Callable[[Namespace], Awaitable[list[str]]]
    ) -> list[str]:
        """Whoever sees nothing in a namespace hears of it only if it is theirs to describe."""
        try:
            names = await self._rights.visible(principal, namespace, await read(namespace))
        except UnknownNamespace:
            self._rights.check_namespace(principal, Operation.DESCRIBE, namespace)
            raise
        if not names:
            self._rights.check_namespace(principal, Operation.DESCRIBE, namespace)
        return names

    async def stage(self, principal: Principal, table: NewTable) -> TableMetadata:
        wish = await self._creator.wish(table)
        if wish is not None:
            return await self._creator.stage(principal, table, wish)
        await self._rights.check(principal, Operation.CREATE, table.name)
        return await self._tables.stage(table)

    async def make_folder(self, principal: Principal, name: TableName, staged: TableMetadata) -> None:
        await self._rights.check(principal, Operation.CREATE, name)
        await self._tables.make_folder(staged)

    async def create(self, principal: Principal, table: NewTable) -> Current:
        wish = await self._creator.wish(table)
        if wish is not None:
            return await self._creator.create(principal, table, wish)
        await self._rights.check(principal, Operation.CREATE, table.name)
        return await self._tables.create(table)

    async def register(
        self, principal: Principal, name: TableName, metadata_location: str, *, overwrite: bool
    ) -> Current:
        """Metadata that is somewhere in the bucket becomes readable by it: who may write the table that is there may
        overwrite it."""
        await self._rights.check(principal, Operation.CREATE, name)
        if overwrite:
            await self._rights.check(principal, Operation.WRITE, name)
        return await self._tables.register(name, metadata_location, overwrite=overwrite)

    async def check_table(self, principal: Principal, name: TableName) -> None:
        """Raises `UnknownTable`."""
        await self._rights.check(principal, Operation.DESCRIBE, name)
        await self._pointers.resolve(name)

    async def readable(self, principal: Principal, name: TableName) -> UUID:
        """The table of that name, for those who may read it: of a stream's, the topic's id. Raises `UnknownTable`."""
        await self._rights.check(principal, Operation.READ, name)
        return await self._pointers.resolve(name)

    async def check_access(self, principal: Principal, name: TableName) -> None:
        """For credentials, with which files are read and, by whoever may commit them, written. Raises
        `UnknownTable`."""
        await self._rights.check(principal, Operation.READ, name)
        await self._pointers.resolve(name)

    async def load(
        self, principal: Principal, name: TableName, freshen: Callable[[TableName], Awaitable[F]] | None
    ) -> tuple[Current, F | None]:
        """`freshen` runs before, for those who may read the table; what it said."""
        await self._rights.check(principal, Operation.READ, name)
        told = await freshen(name) if freshen is not None else None
        return await self._tables.load(name), told

    async def check_readable(self, principal: Principal, current: Current) -> None:
        """Raises `ObjectMissing` if the metadata that was loaded is gone, even if this process remembers it."""
        await self._tables.check_readable(current)

    async def commit(
        self,
        principal: Principal,
        name: TableName,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
    ) -> Current:
        if any(isinstance(requirement, AssertCreate) for requirement in requirements):
            made = await self._creator.create_staged(principal, name, updates)
            if made is not None:
                return made
        await self._rights.check(principal, Operation.WRITE, name)
        change = await self._checked(principal, TableChange(name, requirements, updates))
        current = await self._tables.commit(name, requirements, change.updates, change.shape_text)
        await self._settle([change])
        return current

    async def commit_all(self, principal: Principal, changes: Sequence[TableChange]) -> None:
        await self._rights.check(principal, Operation.WRITE, *(change.name for change in changes))
        checked = [await self._checked(principal, change) for change in changes]
        left = [
            replace(change, updates=each.updates, shape_text=each.shape_text)
            for change, each in zip(changes, checked, strict=True)
        ]
        await commit_all(self._tables, left)
        await self._settle(checked)

    async def _checked(self, principal: Principal, change: TableChange) -> _Checked:
        """What the commit asks of the table alone, and of its topic, if that can be."""
        makes = any(isinstance(requirement, AssertCreate) for requirement in change.requirements)
        current = None if makes else await self._tables.load(change.name)
        topic = None if current is None else await self._streams.topic_of(current.table_id)
        if current is None or topic is None:
            return _Checked(change.updates)
        updates, settings = await self._streams.checked(principal, topic, change.updates)
        altered = await self._columns.altered(principal, topic, current, updates)
        if altered.key:
            settings = settings.with_key(altered.key)
        return _Checked(altered.updates, topic, settings, altered.shape_text)

    async def _settle(self, changes: Sequence[_Checked]) -> None:
        for change in changes:
            if change.topic is not None:
                await self._streams.settle(change.topic, change.settings)

    async def told(self, current: Current) -> dict[str, str]:
        """What else a table shows among its properties: a stream's, the settings of its topic."""
        return await self._streams.told(current)

    async def drop(self, principal: Principal, name: TableName, *, purge: bool) -> None:
        await self._rights.check(principal, Operation.DELETE, name)
        topic = await self._streams.droppable(await self._pointers.resolve(name))
        if topic is not None:
            await self._streams.drop(principal, topic, purge=purge)
        else:
            await self._tables.drop(name, purge=purge)

    async def rename(self, principal: Principal, name: TableName, to: TableName) -> None:
        await self._rights.check(principal, Operation.ALTER, name)
        await self._rights.check(principal, Operation.CREATE, to)
        topic = await self._streams.topic_of(await self._pointers.resolve(name))
        if topic is not None:
            await self._streams.rename(topic, to)
        else:
            await self._tables.rename(name, to)

    async def json(self, metadata: TableMetadata) -> str:
        """The metadata as it is stored and told."""
        commits = self._tables.commits
        return await commits.run(lambda: commits.files.json(metadata))

    # Views

    async def views(self, principal: Principal, namespace: Namespace) -> list[str]:
        """Names of the views directly inside that the caller may describe, in order."""
        return await self._listed(principal, namespace, self._pointers.views.names)

    async def create_view(self, principal: Principal, view: NewView) -> CurrentView:
        await self._rights.check(principal, Operation.CREATE, view.name)
        return await self._views.create(view)

    async def register_view(self, principal: Principal, name: TableName, metadata_location: str) -> CurrentView:
        await self._rights.check(principal, Operation.CREATE, name)
        return await self._views.register(name, metadata_location)

    async def check_view(self, principal: Principal, name: TableName) -> None:
        """Raises `UnknownView`."""
        await self._rights.check(principal, Operation.DESCRIBE, name)
        await self._pointers.views.get(name)

    async def load_view(self, principal: Principal, name: TableName) -> CurrentView:
        await self._rights.check(principal, Operation.READ, name)
        return await self._views.load(name)

    async def change_view(
        self, principal: Principal, name: TableName, view_uuid: UUID | None, updates: Sequence[ViewUpdate]
    ) -> CurrentView:
        await self._rights.check(principal, Operation.WRITE, name)
        return await self._views.change(name, view_uuid, updates)

    async def drop_view(self, principal: Principal, name: TableName) -> None:
        await self._rights.check(principal, Operation.DELETE, name)
        await self._views.drop(name)

    async def rename_view(self, principal: Principal, name: TableName, to: TableName) -> None:
        await self._rights.check(principal, Operation.ALTER, name)
        await self._rights.check(principal, Operation.CREATE, to)
        await self._views.rename(name, to)

    # Namespaces

    async def namespaces(self, principal: Principal, parent: Namespace) -> list[Namespace]:
        """Those directly inside that the caller may describe."""
        if parent:
            self._rights.check_namespace(principal, Operation.DESCRIBE, parent)
        found = await self._pointers.namespaces(parent)
        return [each for each in found if self._rights.allows_namespace(principal, Operation.DESCRIBE, each)]

    async def namespace(self, principal: Principal, namespace: Namespace) -> dict[str, str]:
        """Its properties. Raises `UnknownNamespace`."""
        self._rights.check_namespace(principal, Operation.DESCRIBE, namespace)
        return await self._pointers.namespace(namespace)

    async def create_namespace(self, principal: Principal, namespace: Namespace, properties: Mapping[str, str]) -> None:
        self._rights.check_namespace(principal, Operation.CREATE, namespace)
        await self._check_location(properties)
        await self._pointers.create_namespace(namespace, properties)

    async def set_properties(
        self, principal: Principal, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """What was removed, and what was not there to be."""
        self._rights.check_namespace(principal, Operation.ALTER, namespace)
        await self._check_location(updates)
        return await self._pointers.set_properties(namespace, updates, removals)

    async def drop_namespace(self, principal: Principal, namespace: Namespace) -> None:
        self._rights.check_namespace(principal, Operation.DELETE, namespace)
        await self._pointers.drop_namespace(namespace)

    def location_of(self, namespace: Namespace) -> str:
        """Where its tables are, unless its properties say another place."""
        return f"{self._tables.locations.warehouse}/{namespace_folder(namespace)}"

    async def _check_location(self, properties: Mapping[str, str]) -> None:
        location = properties.get(_LOCATION)
        if location is not None:
            await self._tables.commits.run(lambda: self._tables.locations.check_location(location))
