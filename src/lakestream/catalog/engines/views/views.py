"""Views, as outside engines use them: text and schema of a query, by name. Nothing here ever runs one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.view.metadata import ViewMetadata, ViewVersion

from lakestream.catalog.embedded.commit import Commits
from lakestream.catalog.engines.locations.allowed import Locations, check_paths
from lakestream.catalog.engines.locations.naming import folder_of
from lakestream.catalog.engines.properties import is_on, metadata_folder
from lakestream.catalog.engines.views.changes import ViewDraft, ViewUpdate, apply_view_updates
from lakestream.catalog.files import reason, version_of
from lakestream.errors import (
    Conflict,
    CorruptObject,
    InvalidView,
    ObjectMissing,
    RequestError,
    TableExists,
    Unavailable,
)
from lakestream.metadata.names.pointers import TableName, check_names
from lakestream.metadata.names.views import ViewPointer, ViewRow


@dataclass(frozen=True, slots=True)
class NewView:
    """What an engine asks for. Without a location the view goes under the bucket."""

    name: TableName
    schema: Schema
    version: ViewVersion
    location: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CurrentView:
    row: ViewRow
    metadata: ViewMetadata

    @property
    def location(self) -> str:
        """Where its metadata is."""
        return self.row.pointer.metadata_location


class EngineViews:
    def __init__(self, commits: Commits, locations: Locations) -> None:
        self._commits = commits
        self._rows = commits.pointers.views
        self._locations = locations

    async def load(self, name: TableName) -> CurrentView:
        """Raises `UnknownView`."""
        row = await self._rows.get(name)
        return CurrentView(row, await self._commits.run(lambda: self._read(row.pointer.metadata_location)))

    async def create(self, view: NewView) -> CurrentView:
        """Raises `TableExists` if a table or a view has the name, `UnknownNamespace`, `RequestError`."""
        check_names((*view.name.namespace, view.name.name))
        await self._rows.check_free(view.name)
        view_id = self._commits.runtime.new_id()
        location = (view.location or f"{self._locations.warehouse}/{folder_of(view.name, view_id)}").rstrip("/")
        await self._commits.run(lambda: self._check_home(location, view.properties))
        draft = ViewDraft(str(view_id), location, self._commits.runtime.clock.now_ms())
        draft.properties = dict(view.properties)
        try:
            draft.add_schema(view.schema)
            draft.add_version(view.version.model_copy(update={"schema_id": draft.last_schema_id}))
            draft.set_current(-1)
            metadata = draft.finish()
        except ValueError as error:
            raise InvalidView(f"view {view.name} cannot be made so: {error}") from error
        return await self._add(view.name, view_id, metadata, await self._store(metadata, 0))

    async def register(self, name: TableName, metadata_location: str) -> CurrentView:
        """Takes metadata that is there already. Raises as `create`."""
        check_names((*name.namespace, name.name))
        await self._rows.check_free(name)
        await self._commits.run(lambda: self._locations.check_registered(metadata_location))
        try:
            metadata = await self._commits.run(lambda: self._read(metadata_location))
            view_id = UUID(metadata.view_uuid)
        except (ObjectMissing, CorruptObject, ValueError) as error:
            raise RequestError(f"view {name} cannot be registered: {error}") from error
        await self._commits.run(lambda: self._check_home(metadata.location, metadata.properties))
        return await self._add(name, view_id, metadata, metadata_location, ours=False)

    async def change(self, name: TableName, view_uuid: UUID | None, updates: Sequence[ViewUpdate]) -> CurrentView:
        """One attempt on the view's present state, which must have `view_uuid` if that is given. Raises `UnknownView`,
        `Conflict`, `RequestError`, `Unavailable` if the outcome is unknown."""
        current = await self.load(name)
        found = current.row.pointer.view_id
        if view_uuid not in (None, found):
            raise Conflict(f"Requirement failed: view UUID does not match: expected {found} != {view_uuid}")
        metadata = apply_view_updates(current.metadata, updates, self._commits.runtime.clock.now_ms())
        if metadata == current.metadata:
            return current
        await self._commits.run(lambda: self._check_home(metadata.location, metadata.properties))
        location = await self._store(metadata, version_of(current.location) + 1)
        pointer = ViewPointer(found, location)
        try:
            version = await self._rows.swing(name, current.row.version, pointer)
        except Conflict:
            await self._commits.run(lambda: self._commits.files.delete([location], metadata.location))
            raise
        return CurrentView(ViewRow(pointer, version), metadata)

    async def rename(self, name: TableName, to: TableName) -> None:
        """Raises `UnknownView`, `TableExists`, `UnknownNamespace`."""
        await self._rows.rename(name, to)

    async def drop(self, name: TableName) -> None:
        """Its present metadata goes too, unless `gc.enabled` is false or another view has the same. Raises
        `UnknownView`."""
        dropped = await self._rows.drop(name)
        try:
            metadata = await self._commits.run(lambda: self._read(dropped.metadata_location))
        except (ObjectMissing, CorruptObject):
            return
        shared = dropped.metadata_location in await self._rows.metadata_locations()
        if is_on(metadata.properties, "gc.enabled", default=True) and not shared:
            doomed = [dropped.metadata_location]
            await self._commits.run(lambda: self._commits.files.delete(doomed, metadata.location))

    async def _add(
        self, name: TableName, view_id: UUID, metadata: ViewMetadata, location: str, *, ours: bool = True
    ) -> CurrentView:
        pointer = ViewPointer(view_id, location)
        try:
            version = await self._rows.create(name, pointer)
        except (TableExists, RequestError):
            if ours:
                await self._commits.run(lambda: self._commits.files.delete([location], metadata.location))
            raise
        return CurrentView(ViewRow(pointer, version), metadata)

    def _check_home(self, location: str, properties: Mapping[str, str]) -> None:
        self._locations.check_location(location)
        check_paths({}, properties, location)

    async def _store(self, metadata: ViewMetadata, version: int) -> str:
        unique = self._commits.runtime.new_id()
        return await self._commits.run(lambda: self._write(metadata, version, unique))

    def _write(self, metadata: ViewMetadata, version: int, unique: UUID) -> str:
        """Durably, under a fresh name, which is returned."""
        folder = metadata_folder(metadata.location, metadata.properties)
        names: list[str] = []
        file = self._commits.files.io.new_sealed(f"{folder}/{version:05d}-{unique}.metadata.json", names.append)
        try:
            with file.create() as stream:
                stream.write(metadata.model_dump_json().encode())
            self._commits.files.sync(names, new_folders=version == 0)
        except OSError as error:
            raise Unavailable(f"view metadata {file.location} cannot be written now: {error}") from error
        return file.location

    def _read(self, location: str) -> ViewMetadata:
        try:
            with self._commits.files.io.new_input(location).open() as stream:
                return ViewMetadata.model_validate_json(stream.read())
        except FileNotFoundError as error:
            raise ObjectMissing(f"Failed to open input stream for file: {location} is missing") from error
        except OSError as error:
            raise Unavailable(f"view metadata {location} cannot be read now: {error}") from error
        except ValidationError as error:
            raise CorruptObject(f"{location} is no view metadata: {reason(error)}") from error
