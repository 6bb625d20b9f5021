"""CREATE TABLE of a stream: the subject's schema, the table's first metadata, the topic, the name.

The topic list decides. Before a topic is listed there is nothing that anybody sees but a version of its subject, which
whoever tries again finds; once it is listed its table is there, and needs only its name, which whoever comes by gives
it (`frontier.moving.advance.ensure_table`).
"""

import logging
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate

from lakestream.access import Principal
from lakestream.catalog.binding import ALIAS, check_alias
from lakestream.catalog.engines.rights import TableRights
from lakestream.catalog.engines.streams.first import AskedTable, asked_table, dressed
from lakestream.catalog.engines.streams.wish import StreamDefaults, StreamWish, defaults_of, read_wish
from lakestream.catalog.engines.tables import EngineTables, NewTable
from lakestream.catalog.first import first_metadata
from lakestream.catalog.staging import Current
from lakestream.errors import (
    Conflict,
    RegistryProblem,
    RegistryRefused,
    RequestError,
    StreamExists,
    TableExists,
    TableRefused,
)
from lakestream.metadata.names.pointers import TableName, check_names
from lakestream.metadata.topics.list import Begun, Topic, Topics
from lakestream.metadata.topics.tables import DEFAULT_NAMESPACE, clashing_name, detached_name, table_name
from lakestream.objects.paths import is_inside
from lakestream.schemas.registry.model import Schema, SchemaType, parse_subject
from lakestream.schemas.registry.registry import SchemaRegistry
from lakestream.table.schema import FRONTIER_PROPERTY, frontier_text

_log = logging.getLogger(__name__)

_PROVISIONAL: Final = 0
"""A schema's id before it is registered."""


class StreamCreator:
    def __init__(
        self,
        tables: EngineTables,
        topics: Topics,
        rights: TableRights,
        registry: SchemaRegistry | None,
        defaults: StreamDefaults,
    ) -> None:
        self._tables = tables
        self._commits = tables.commits
        self._pointers = tables.commits.pointers
        self._topics = topics
        self._rights = rights
        self._registry = registry
        self._defaults = defaults

    async def wish(self, table: NewTable) -> StreamWish | None:
        """None: the table is to be an ordinary one. What its namespace says holds where it says nothing itself."""
        try:
            namespace = await self._pointers.namespace(table.name.namespace)
        except RequestError:
            namespace = {}
        said = {**defaults_of(namespace), **table.properties}
        return read_wish(table.name, said, self._defaults.partitions)

    async def stage(self, principal: Principal, table: NewTable, wish: StreamWish) -> TableMetadata:
        """What the engine is told before it creates the table: its own columns alone, which are all that it may fill.
        Changes nothing. Raises what `create` would, as far as that can be known before."""
        topic_id = self._commits.runtime.new_id()
        await self._check(principal, table, wish, topic_id)
        kept = {**wish.configs, **table.properties}
        staged = self._tables.made(table, topic_id, self._home(wish, topic_id, table.location))
        return staged.model_copy(update={"properties": {**staged.properties, **kept}})

    async def create(
        self, principal: Principal, table: NewTable, wish: StreamWish, topic_id: UUID | None = None
    ) -> Current:
        """Raises `TableExists`, `NotAuthorized`, `RequestError` with a sentence: then nothing is left of it but, at
        most, a version of the subject."""
        topic_id = topic_id or self._commits.runtime.new_id()
        asked = await self._check(principal, table, wish, topic_id)
        schema_id = await self._register(principal, wish, asked.text)
        asked = await self._asked(wish, table, schema_id)
        metadata = self._first(table, wish, asked, topic_id)
        await self._tables.claims.take(metadata)
        current = await self._commits.create(topic_id, metadata, bound=True)
        if current.metadata is not metadata:
            raise Conflict(f"a table with UUID {topic_id} was made by somebody else just now")
        try:
            topic = await self._topics.create(
                wish.topic, wish.partitions, dict(wish.configs), begun=Begun(topic_id, (0,) * wish.partitions)
            )
        except RequestError as error:
            # Refused for certain: nobody can ever have seen the table.
            await self._pointers.drop(topic_id)
            await self._commits.stager.discard([current.location], metadata.location)
            await self._tables.claims.release(metadata)
            if isinstance(error, StreamExists):
                raise await self._exists(table.name, wish) from error
            raise
        await self._name(topic, table.name)
        return current

    async def create_staged(
        self, principal: Principal, name: TableName, updates: Sequence[TableUpdate]
    ) -> Current | None:
        """By a commit that makes a table. None: it is to be an ordinary one."""
        table, topic_id = self._tables.asked(name, updates)
        wish = await self.wish(table)
        if wish is None:
            return None
        await self._check_empty([update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)])
        return await self.create(principal, table, wish, topic_id)

    async def _check_empty(self, snapshots: Sequence[Snapshot]) -> None:
        """Some engines begin with a snapshot that is empty. Raises `TableRefused` for one that brings rows."""
        index = self._commits.index
        for snapshot in snapshots:
            if await self._commits.run(lambda snapshot=snapshot: index.manifests(snapshot.manifest_list)):  # type: ignore[misc]
                raise TableRefused(
                    "a stream's table begins without rows: CREATE TABLE first, and let a producer, or INSERT INTO with"
                    " lakestream.table.inserts=true, write the rows"
                )

    async def _check(self, principal: Principal, table: NewTable, wish: StreamWish, topic_id: UUID) -> AskedTable:
        """Everything that can be known before anything is written."""
        self._rights.check_new_topic(principal, wish.topic)
        check_names((*table.name.namespace, table.name.name))
        if table.name.namespace != DEFAULT_NAMESPACE:
            await self._pointers.namespace(table.name.namespace)
        asked = await self._asked(wish, table, _PROVISIONAL)
        self._first(table, wish, asked, topic_id)
        await self._tables.check_free(table.name)
        await self._check_place(wish, topic_id, table)
        self._defaults.check_profile(wish.configs)
        try:
            await self._topics.check_new(wish.topic, wish.partitions, wish.configs)
        except StreamExists as error:
            raise await self._exists(table.name, wish) from error
        if ALIAS in wish.configs:
            await check_alias(self._pointers, self._topics, wish.configs)
        await self._check_subject(principal, wish, asked.text)
        return asked

    async def _asked(self, wish: StreamWish, table: NewTable, schema_id: int) -> AskedTable:
        return await self._commits.runtime.off_loop(lambda: asked_table(wish, table.schema, schema_id))

    async def _check_place(self, wish: StreamWish, topic_id: UUID, table: NewTable) -> None:
        """An engine may have been told the stream's own place when it asked what the table would be."""
        place = self._home(wish, topic_id, table.location)
        if place == self._home(wish, topic_id, None):
            return
        if not is_inside(place, self._tables.bucket_url):
            raise TableRefused(
                f"{place} cannot be a stream's: brokers read {self._tables.bucket_url} alone; leave LOCATION out"
            )
        await self._commits.run(lambda: self._tables.check_home(place, {}))

    def _first(self, table: NewTable, wish: StreamWish, asked: AskedTable, topic_id: UUID) -> TableMetadata:
        frontier = {FRONTIER_PROPERTY: frontier_text((0,) * wish.partitions)}
        home, now_ms = self._home(wish, topic_id, table.location), self._commits.runtime.clock.now_ms()
        metadata = first_metadata(topic_id, wish.topic, home, frontier, asked.shape, now_ms)
        return dressed(metadata, asked, table.spec, table.order, wish)

    def _home(self, wish: StreamWish, topic_id: UUID, chosen: str | None) -> str:
        return (chosen or f"{self._tables.bucket_url}/tables/{detached_name(wish.topic, topic_id)}").rstrip("/")

    async def _check_subject(self, principal: Principal, wish: StreamWish, text: str) -> None:
        registry, subject = self._schemas(), parse_subject(wish.subject)
        found = await registry.check(principal, subject, Schema(SchemaType(wish.format), text))
        if found:
            raise RegistryRefused(
                RegistryProblem.INCOMPATIBLE,
                f"subject {wish.subject} has versions that the columns do not get along with ({'; '.join(found)}):"
                " delete the subject, or name another one in lakestream.value.subject",
            )

    async def _register(self, principal: Principal, wish: StreamWish, text: str) -> int:
        schema = Schema(SchemaType(wish.format), text)
        return (await self._schemas().register(principal, parse_subject(wish.subject), schema)).id

    def _schemas(self) -> SchemaRegistry:
        if self._registry is None:
            raise RequestError(
                "streams cannot be made by CREATE TABLE here: their schemas are kept in a registry of the owner's. Make"
                " the topic and register the schema there, and its table follows"
            )
        return self._registry

    async def _exists(self, name: TableName, wish: StreamWish) -> TableExists:
        """Why there can be no topic of that name; also finishes what may have been begun."""
        topic = (await self._topics.by_names([wish.topic])).get(wish.topic)
        if topic is not None and table_name(topic.name, topic.options.table_name) == name:
            row = await self._pointers.get(topic.topic_id)
            if row is not None and row.pointer.bound:
                await self._pointers.bind(topic.topic_id, name, make_namespace=True)
            return TableExists(f"Table already exists: {name}")
        return TableExists(
            f"topic {wish.topic} is there already, with a table of its own: name another topic in lakestream.topic"
        )

    async def _name(self, topic: Topic, name: TableName) -> None:
        try:
            bound = await self._pointers.bind(topic.topic_id, name, make_namespace=name.namespace == DEFAULT_NAMESPACE)
        except RequestError as error:
            other = clashing_name(table_name(topic.name), topic.topic_id)
            await self._pointers.bind(topic.topic_id, other, make_namespace=True)
            raise TableExists(
                f"{error}. It was made in this moment: topic {topic.name} is there, and its table is {other}; rename or"
                " drop that, as you like"
            ) from error
        if bound != name:
            _log.info("the table of topic %s was named %s by somebody else", topic.name, bound)
