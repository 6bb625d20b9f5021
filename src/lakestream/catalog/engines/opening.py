"""Tables that take INSERTs: the log's required columns are optional there, for good.

An engine that leaves a column out of an INSERT leaves nulls in it, and refuses to where the column is required. Files
of the log have them in any case. And DuckDB inserts into no partitioned table with a size for row groups, which is only
a hint for engines that rewrite.
"""

from typing import Final
from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    TableUpdate,
)

from lakestream.catalog.embedded.commit import Commits
from lakestream.catalog.staging import Change, Prepare
from lakestream.errors import Conflict
from lakestream.table.schema import ROW_GROUP_PROPERTY
from lakestream.table.shape import SYSTEM_NAMES

_ATTEMPTS: Final = 10
_LAST_ADDED: Final = -1


class InsertOpener:
    """Opens tables that take INSERTs, each once."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._open: set[UUID] = set()

    async def __call__(self, table_id: UUID) -> None:
        """Raises what `open_for_inserts` does."""
        if table_id not in self._open:
            await open_for_inserts(self._commits, table_id)
            self._open.add(table_id)


async def open_for_inserts(commits: Commits, table_id: UUID) -> None:
    """Idempotent. Raises `Conflict` if others change the table all the time."""
    for _ in range(_ATTEMPTS):
        current = await commits.load(table_id)
        if current is None or not current.row.pointer.bound:
            return
        updates = _opening(current.metadata)
        if not updates:
            return
        try:
            await commits.commit(current, _prepared(current.metadata, updates))
        except Conflict:
            continue
        return
    raise Conflict(f"table {table_id} was changed by others {_ATTEMPTS} times while it was opened for INSERTs")


def _prepared(metadata: TableMetadata, updates: list[TableUpdate]) -> Prepare:
    held = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
    )
    return lambda _metadata, _written: Change(held, updates)


def _opening(metadata: TableMetadata) -> list[TableUpdate]:
    schema = metadata.schema()
    updates: list[TableUpdate] = []
    if any(field.required and field.name in SYSTEM_NAMES for field in schema.fields):
        fields = [
            field.model_copy(update={"required": False}) if field.name in SYSTEM_NAMES else field
            for field in schema.fields
        ]
        opened = Schema(*fields, schema_id=schema.schema_id + 1)
        updates += [AddSchemaUpdate(schema=opened), SetCurrentSchemaUpdate.model_validate({"schema-id": _LAST_ADDED})]
    if ROW_GROUP_PROPERTY in metadata.properties:
        updates.append(RemovePropertiesUpdate(removals=[ROW_GROUP_PROPERTY]))
    return updates
