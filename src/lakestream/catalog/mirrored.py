"""What a mirror of a table needs of the table: its columns, and snapshots that stay."""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from lakestream.catalog.staging import Change, TableCommits
from lakestream.errors import StorageError, UnknownStream
from lakestream.table.view import View

TAG: Final = "lakestream-delta"
"""The tag that holds what a mirror shows that cannot follow."""


class IcebergSide:
    """Implements the mirror's `MirroredTables`."""

    def __init__(self, commits: TableCommits) -> None:
        self._commits = commits
        self._stager = commits.stager

    async def columns(self, view: View) -> pa.Schema:
        return await self._stager.run(lambda: _columns(view, self._stager.files.read(view.metadata_location)))

    async def hold(self, topic_id: UUID, snapshot_id: int | None) -> None:
        """Raises `Conflict` if the table changed meanwhile."""
        current = await self._commits.load(topic_id)
        if current is None:
            raise UnknownStream(f"topic {topic_id} has no table")
        tag = current.metadata.refs.get(TAG)
        held = None if tag is None else tag.snapshot_id
        if snapshot_id is not None and current.metadata.snapshot_by_id(snapshot_id) is None:
            snapshot_id = None
        if held == snapshot_id:
            return

        def prepare(metadata: TableMetadata, _written: list[str]) -> Change:
            requirements = (
                AssertTableUUID(uuid=metadata.table_uuid),
                AssertRefSnapshotId.model_validate({"ref": TAG, "snapshot-id": held}),
            )
            update: TableUpdate = RemoveSnapshotRefUpdate.model_validate({"ref-name": TAG})
            if snapshot_id is not None:
                update = SetSnapshotRefUpdate.model_validate(
                    {"ref-name": TAG, "type": SnapshotRefType.TAG, "snapshot-id": snapshot_id}
                )
            return Change(requirements, (update,))

        await self._commits.commit(current, prepare)


def _columns(view: View, metadata: TableMetadata) -> pa.Schema:
    present = dict(_paths(metadata.schema()))
    for schema in metadata.schemas:
        for path, field_id in _paths(schema):
            other = next((name for name, found in present.items() if found == field_id), path)
            if other != path or present.get(path, field_id) != field_id:
                raise StorageError(
                    f"column {path} of {view.table} was renamed, or another took its name: a mirror that finds "
                    "columns by name would show wrong values, so it stays as it was. Files with the old name may be "
                    "there, so renaming it back does not help: take delta out of lakestream.table.formats"
                )
    return schema_to_pyarrow(metadata.schema(), include_field_ids=False)


def _paths(schema: Schema) -> Iterator[tuple[str, int]]:
    """Every column with the columns inside of it."""
    for field_id in schema.field_ids:
        name = schema.find_column_name(field_id)
        if name is not None:
            yield name, field_id
