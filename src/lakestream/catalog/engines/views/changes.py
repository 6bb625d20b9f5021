"""What a change to a view asks for, applied to its metadata. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field
from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.view.metadata import ViewHistoryEntry, ViewMetadata, ViewVersion

from lakestream.catalog.engines.properties import is_on
from lakestream.errors import InvalidView

_FORMAT: Final = 1
_LAST_ADDED: Final = -1
_KEPT_PROPERTY: Final = "version.history.num-entries"
_KEPT_DEFAULT: Final = "10"
_DROP_DIALECT_PROPERTY: Final = "replace.drop-dialect.allowed"


class AddViewVersionUpdate(IcebergBaseModel):
    action: Literal["add-view-version"] = "add-view-version"
    view_version: ViewVersion = Field(alias="view-version")


class SetCurrentViewVersionUpdate(IcebergBaseModel):
    action: Literal["set-current-view-version"] = "set-current-view-version"
    view_version_id: int = Field(alias="view-version-id")


ViewUpdate = Annotated[
    AssignUUIDUpdate
    | UpgradeFormatVersionUpdate
    | AddSchemaUpdate
    | SetLocationUpdate
    | SetPropertiesUpdate
    | RemovePropertiesUpdate
    | AddViewVersionUpdate
    | SetCurrentViewVersionUpdate,
    Field(discriminator="action"),
]


@dataclass(slots=True)
class ViewDraft:
    """A view that is being changed. Versions and schemas that are there already are meant, never added again."""

    view_uuid: str
    location: str
    now_ms: int
    current_version_id: int = 0
    schemas: list[Schema] = field(default_factory=list)
    versions: list[ViewVersion] = field(default_factory=list)
    log: list[ViewHistoryEntry] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    last_schema_id: int | None = None
    last_version_id: int | None = None
    added_version_ids: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, base: ViewMetadata, now_ms: int) -> "ViewDraft":
        return cls(
            base.view_uuid,
            base.location,
            now_ms,
            base.current_version_id,
            list(base.schemas),
            list(base.versions),
            list(base.version_log),
            dict(base.properties),
        )

    def add_schema(self, schema: Schema) -> None:
        known = next((other for other in self.schemas if other == schema), None)
        if known is not None:
            self.last_schema_id = known.schema_id
            return
        schema_id = max((other.schema_id for other in self.schemas), default=-1) + 1
        self.schemas.append(schema.model_copy(update={"schema_id": schema_id}))
        self.last_schema_id = schema_id

    def add_version(self, version: ViewVersion) -> None:
        """Raises ValueError."""
        if version.schema_id == _LAST_ADDED:
            if self.last_schema_id is None:
                raise ValueError("Cannot set last added schema: no schema has been added")
            version = version.model_copy(update={"schema_id": self.last_schema_id})
        if all(schema.schema_id != version.schema_id for schema in self.schemas):
            raise ValueError(f"Cannot add version with unknown schema: {version.schema_id}")
        seen: set[str] = set()
        for dialect in _dialects(version):
            if dialect in seen:
                raise ValueError(f"Invalid view version: Cannot add multiple queries for dialect {dialect}")
            seen.add(dialect)
        same = next((other for other in self.versions if _behaviour(other) == _behaviour(version)), None)
        if same is not None:
            self.last_version_id = same.version_id
            return
        taken = [other.version_id for other in self.versions]
        version_id = max([version.version_id, *(number + 1 for number in taken)])
        self.versions.append(version.model_copy(update={"version_id": version_id}))
        self.added_version_ids.add(version_id)
        self.last_version_id = version_id

    def set_current(self, version_id: int) -> None:
        """Raises ValueError."""
        if version_id == _LAST_ADDED:
            if self.last_version_id is None:
                raise ValueError("Cannot set last version id: no current version id has been set")
            version_id = self.last_version_id
        if version_id == self.current_version_id:
            return
        version = next((other for other in self.versions if other.version_id == version_id), None)
        if version is None:
            raise ValueError(f"Cannot set current version to unknown version: {version_id}")
        self.current_version_id = version_id
        # A version that was current before is current again from now on, not from when it was made.
        timestamp_ms = version.timestamp_ms if version_id in self.added_version_ids else self.now_ms
        self.log.append(ViewHistoryEntry.model_validate({"timestamp-ms": timestamp_ms, "version-id": version_id}))

    def finish(self) -> ViewMetadata:
        """Raises ValueError. Old versions go, as far as the view's own property says."""
        if not any(version.version_id == self.current_version_id for version in self.versions):
            raise ValueError("Invalid view: no versions were added")
        kept = int(self.properties.get(_KEPT_PROPERTY, _KEPT_DEFAULT))
        if kept <= 0:
            raise ValueError(f"{_KEPT_PROPERTY} must be positive but was {kept}")
        must = self.added_version_ids | {self.current_version_id}
        others = sorted((v.version_id for v in self.versions if v.version_id not in must), reverse=True)
        kept_ids = must | set(others[: max(0, kept - len(must))])
        return ViewMetadata.model_validate(
            {
                "view-uuid": self.view_uuid,
                "format-version": _FORMAT,
                "location": self.location,
                "schemas": self.schemas,
                "current-version-id": self.current_version_id,
                "versions": [version for version in self.versions if version.version_id in kept_ids],
                "version-log": _log_of(self.log, kept_ids),
                "properties": self.properties,
            }
        )


def apply_view_updates(base: ViewMetadata, updates: Sequence[ViewUpdate], now_ms: int) -> ViewMetadata:
    """The view after the updates. Raises `InvalidView`."""
    draft = ViewDraft.of(base, now_ms)
    try:
        for update in updates:
            _apply(draft, update)
        changed = draft.finish()
    except ValueError as error:
        raise InvalidView(f"the view cannot be changed so: {error}") from error
    if not is_on(changed.properties, _DROP_DIALECT_PROPERTY, default=False):
        _check_dialects(base, changed)
    return changed


def _apply(draft: ViewDraft, update: ViewUpdate) -> None:
    match update:
        case AssignUUIDUpdate():
            if str(update.uuid) != draft.view_uuid:
                raise ValueError("Cannot reassign uuid")
        case UpgradeFormatVersionUpdate():
            if update.format_version != _FORMAT:
                raise ValueError(f"views have format version {_FORMAT} only, not {update.format_version}")
        case AddSchemaUpdate():
            draft.add_schema(update.schema_)
        case SetLocationUpdate():
            draft.location = update.location
        case SetPropertiesUpdate():
            draft.properties |= update.updates
        case RemovePropertiesUpdate():
            draft.properties = {key: text for key, text in draft.properties.items() if key not in update.removals}
        case AddViewVersionUpdate():
            draft.add_version(update.view_version)
        case SetCurrentViewVersionUpdate():
            draft.set_current(update.view_version_id)


def _check_dialects(base: ViewMetadata, changed: ViewMetadata) -> None:
    """An engine whose dialect disappears could no longer read the view."""
    before, after = _current(base), _current(changed)
    if before.version_id != after.version_id and not set(_dialects(before)) <= set(_dialects(after)):
        raise InvalidView(
            f"Cannot replace view due to loss of view dialects ({_DROP_DIALECT_PROPERTY}=false):\n"
            f"Previous dialects: {_dialects(before)}\nNew dialects: {_dialects(after)}"
        )


def _current(view: ViewMetadata) -> ViewVersion:
    return next(version for version in view.versions if version.version_id == view.current_version_id)


def _dialects(version: ViewVersion) -> list[str]:
    return [representation.root.dialect.lower() for representation in version.representations]


def _behaviour(version: ViewVersion) -> tuple[object, ...]:
    """Everything but the id and the time."""
    queries = tuple((sql.root.dialect, sql.root.sql) for sql in version.representations)
    return version.summary, queries, version.default_catalog, tuple(version.default_namespace), version.schema_id


def _log_of(log: Sequence[ViewHistoryEntry], kept_ids: set[int]) -> list[ViewHistoryEntry]:
    """What follows the last entry of a version that is gone: a log has no holes."""
    gone = [place for place, entry in enumerate(log) if entry.version_id not in kept_ids]
    return list(log[gone[-1] + 1 :]) if gone else list(log)
