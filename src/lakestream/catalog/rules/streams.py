"""What a commit to a stream's table must keep. Pure."""

from collections.abc import Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import IcebergType, NestedField

from lakestream.catalog.rules.evolving import check_evolution
from lakestream.errors import TableRefused
from lakestream.model import DataFile, WrittenFile
from lakestream.table.schema import (
    FRONTIER_PROPERTY,
    SHAPE_PROPERTY,
    TOPIC_ID_PROPERTY,
    UNPARTITIONED,
    frontier_text,
    iceberg_schema,
    parse_frontier,
    shape_of,
    stream_spec,
)
from lakestream.table.shape import SYSTEM_NAMES, TableShape
from lakestream.table.view import View


def falls(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Whether `new` is behind `old` in any partition, or has fewer of them."""
    return len(new) < len(old) or any(after < before for before, after in zip(old, new, strict=False))


def check_commit(view: View, add: Sequence[WrittenFile], remove: Sequence[DataFile], frontier: tuple[int, ...]) -> None:
    """Raises ValueError for a commit that is wrong whatever the table's present state is."""
    if falls(view.frontier, frontier):
        raise ValueError(
            f"{view.table}: the frontier would fall from {frontier_text(view.frontier)} to {frontier_text(frontier)}"
        )
    gone = {file.path for file in remove}
    added = {file.path for file in add}
    named = gone | added
    live = {file.path for file in view.files if file.path in named}
    if len(added) != len(add) or added & live:
        raise ValueError(f"{view.table}: a file would be in the table twice: {sorted(added & live) or sorted(added)}")
    if len(gone) != len(remove) or not gone <= live:
        raise ValueError(f"{view.table}: files to remove are not in the view: {sorted(gone - live)}")


def check_change(base: TableMetadata, new: TableMetadata, *, outside: bool) -> None:
    """Raises `TableRefused` for a change that the table of a living topic must never have. `outside`: it is an
    engine's; of ours one may also be wrong in itself (`ValueError`)."""
    if new.table_uuid != base.table_uuid:
        raise TableRefused("the UUID of a stream's table cannot change: it is the topic's")
    if new.location != base.location:
        raise TableRefused("the location of a stream's table cannot change while its topic lives")
    if new.format_version != base.format_version:
        raise TableRefused(
            f"a stream's table stays in format version {base.format_version}: the engine writes no other"
        )
    if new.properties.get(TOPIC_ID_PROPERTY) != base.properties.get(TOPIC_ID_PROPERTY):
        raise TableRefused(f"{TOPIC_ID_PROPERTY} binds the table to its topic and cannot be changed or removed")
    if new.properties.get(SHAPE_PROPERTY) != base.properties.get(SHAPE_PROPERTY):
        if outside:
            raise TableRefused(f"{SHAPE_PROPERTY} says which columns hold the stream and cannot be changed or removed")
        check_evolution(shape_of(base.properties), shape_of(new.properties), base.last_column_id)
    _check_frontier(base, new)
    if _is_replaced(base, new):
        raise TableRefused(
            "the table of a living topic cannot be replaced, because its columns and its rows are the log's: DELETE the"
            " rows that shall go, or make another table"
        )
    if base.current_snapshot_id is not None and new.current_snapshot_id is None:
        raise TableRefused(f"branch {MAIN_BRANCH} of a stream's table cannot be removed: consumers read it")
    check_columns(new.schema(), shape_of(new.properties))
    check_specs(new)


def _is_replaced(base: TableMetadata, new: TableMetadata) -> bool:
    """Whether a new history begins beside the old one, as `CREATE OR REPLACE TABLE … AS` has it. Such a commit does not
    even require main to be as it was."""
    known = {snapshot.snapshot_id for snapshot in base.snapshots}
    main = new.current_snapshot()
    if main is None or main.snapshot_id in known or main.parent_snapshot_id is not None:
        return False
    return any(snapshot.snapshot_id == base.current_snapshot_id for snapshot in new.snapshots)


def check_specs(metadata: TableMetadata) -> None:
    """Raises `TableRefused` unless the partition specs of the log are there."""
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    for spec in (UNPARTITIONED, stream_spec(shape_of(metadata.properties))):
        if specs.get(spec.spec_id) != spec:
            raise TableRefused(
                f"partition spec {spec.spec_id} of a stream's table cannot be removed: the engine writes it"
            )


def _check_frontier(base: TableMetadata, new: TableMetadata) -> None:
    before, after = base.properties.get(FRONTIER_PROPERTY), new.properties.get(FRONTIER_PROPERTY)
    if before is None or before == after:
        return
    if after is None:
        raise TableRefused(f"{FRONTIER_PROPERTY} says which offsets the table holds and cannot be removed")
    try:
        fell = falls(parse_frontier(before), parse_frontier(after))
    except ValueError as error:
        raise TableRefused(f"{FRONTIER_PROPERTY} must be offsets with commas between, not {after!r}") from error
    if fell:
        raise TableRefused(f"{FRONTIER_PROPERTY} would fall from {before} to {after}: a frontier never goes back")
    known = {snapshot.snapshot_id for snapshot in base.snapshots}
    if new.current_snapshot_id is None or new.current_snapshot_id in known:
        raise TableRefused(f"{FRONTIER_PROPERTY} changes only together with a new snapshot on {MAIN_BRANCH}")


def check_columns(schema: Schema, shape: TableShape) -> None:
    """Raises `TableRefused` unless the columns of the log are all there and as they were made; the log's own may have
    become optional, as they are where rows are inserted."""
    for field in iceberg_schema(shape).fields:
        found = schema.find_field(field.field_id) if field.field_id in schema.field_ids else None
        if found is None or found.name != field.name or not _same_type(found.field_type, field.field_type):
            raise TableRefused(f"column {field.name} of a stream's table cannot be dropped, renamed or retyped")
        if found.required != field.required and (found.required or field.name not in SYSTEM_NAMES):
            raise _stays(field)


def check_required(before: Schema, after: Schema, shape: TableShape) -> None:
    """Raises `TableRefused` if a column of the log becomes optional, or required again."""
    for column in shape.columns:
        field = before.find_field(column.field_id)
        if after.find_field(column.field_id).required != field.required:
            raise _stays(field)


def _stays(field: NestedField) -> TableRefused:
    return TableRefused(f"column {field.name} of a stream's table stays {'required' if field.required else 'optional'}")


def _same_type(one: IcebergType, other: IcebergType) -> bool:
    """Whatever comments are on the fields within."""
    return one == other or _uncommented(one.model_dump()) == _uncommented(other.model_dump())


def _uncommented(dumped: Any) -> Any:
    if isinstance(dumped, dict):
        return {key: _uncommented(value) for key, value in dumped.items() if key != "doc"}
    return [_uncommented(value) for value in dumped] if isinstance(dumped, list | tuple) else dumped
