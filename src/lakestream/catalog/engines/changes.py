"""What a commit asks for, applied to a table's metadata. Pure.

PyIceberg applies updates but leaves out what a server has to do for its clients: they number new schemas, specs and
orders by what they saw, which may be taken by now; they remove properties that are not there; they upgrade to format
version 3. And requirements that fail are worded as engines know them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, TableMetadataV3
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    update_table_metadata,
)

from lakestream.errors import Conflict, RequestError

NEWEST_FORMAT: Final = 3
_LAST_ADDED: Final = -1


def check_requirements(base: TableMetadata, requirements: Sequence[TableRequirement]) -> None:
    """Raises `Conflict` for the first that does not hold."""
    for requirement in requirements:
        reason = _reason(base, requirement)
        if reason is not None:
            raise Conflict(f"Requirement failed: {reason}")


def _reason(base: TableMetadata, requirement: TableRequirement) -> str | None:
    match requirement:
        case AssertCreate():
            return "table already exists"
        case AssertRefSnapshotId():
            return _ref_reason(base, requirement)
        case AssertTableUUID():
            return _unless_same("UUID does not match: expected", requirement.uuid, base.table_uuid)
        case AssertLastAssignedFieldId():
            wanted = requirement.last_assigned_field_id
            return _unless_same("last assigned field id changed: expected id", wanted, base.last_column_id)
        case AssertCurrentSchemaId():
            wanted = requirement.current_schema_id
            return _unless_same("current schema changed: expected id", wanted, base.current_schema_id)
        case AssertLastAssignedPartitionId():
            last = requirement.last_assigned_partition_id
            return _unless_same("last assigned partition id changed: expected id", last, base.last_partition_id)
        case AssertDefaultSpecId():
            wanted = requirement.default_spec_id
            return _unless_same("default partition spec changed: expected id", wanted, base.default_spec_id)
        case AssertDefaultSortOrderId():
            wanted = requirement.default_sort_order_id
            return _unless_same("default sort order changed: expected id", wanted, base.default_sort_order_id)


def _unless_same(what: str, expected: object, found: object) -> str | None:
    return None if expected == found else f"{what} {expected} != {found}"


def _ref_reason(base: TableMetadata, requirement: AssertRefSnapshotId) -> str | None:
    name, expected, ref = requirement.ref, requirement.snapshot_id, base.refs.get(requirement.ref)
    if ref is None:
        return None if expected is None else f"branch or tag {name} is missing, expected {expected}"
    kind = ref.snapshot_ref_type.value
    if expected is None:
        return f"{kind} {name} was created concurrently"
    if expected != ref.snapshot_id:
        return f"{kind} {name} has changed: expected id {expected} != {ref.snapshot_id}"
    return None


def apply_updates(
    base: TableMetadata, updates: Sequence[TableUpdate], location: str | None, *, validate: bool
) -> TableMetadata:
    """The metadata after the updates; `base` itself if they change nothing. Raises `RequestError`, or `Conflict` for
    what was made from an older state."""
    _check_sequence(base, updates)
    try:
        upgraded, others = _upgraded(base, updates)
        possible = tuple(_renumbered(upgraded, others))
        if not possible:
            return base
        if validate:
            changed = update_table_metadata(upgraded, possible, enforce_validation=True, metadata_location=location)
            return _without_passing(base, changed)
        return _updated(upgraded, possible, location)
    except (ValueError, KeyError, ValidationError) as error:
        raise RequestError(f"the table cannot be changed so: {error}") from error


def _check_sequence(base: TableMetadata, updates: Sequence[TableUpdate]) -> None:
    """A commit to a branch requires that branch to be as it was. If another has moved meanwhile, all that is wrong is
    the number of its snapshot: engines have to be told to try again. Numbers are given one by one: whoever skips some
    could use them up."""
    if base.format_version == 1:
        return
    last = base.last_sequence_number
    added = [update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)]
    for position, snapshot in enumerate(added, start=1):
        number = snapshot.sequence_number
        if number is None:
            continue
        if number <= last and position == 1 and snapshot.parent_snapshot_id is not None:
            raise Conflict(
                f"Cannot add snapshot with sequence number {number} older than last sequence number {last}: somebody"
                " else has committed meanwhile"
            )
        if number > last + position:
            raise RequestError(f"Cannot add snapshot with sequence number {number}: the next is {last + position}")


def _without_passing(base: TableMetadata, changed: TableMetadata) -> TableMetadata:
    """A commit may bring several snapshots, one made from the other. Main has only ever been the last of them, and its
    log says what it has been."""
    known = {snapshot.snapshot_id for snapshot in base.snapshots} | {changed.current_snapshot_id}
    log = [entry for entry in changed.snapshot_log if entry.snapshot_id in known]
    return changed if len(log) == len(changed.snapshot_log) else changed.model_copy(update={"snapshot_log": log})


class _Sharing(TableMetadataV2):
    """Shares with what it was made from all that does not change. PyIceberg copies the whole of a table's metadata with
    every change, each snapshot and each column of it; but its models are frozen, and nobody changes what they hold."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        return super().model_copy(update=update)


def _updated(base: TableMetadata, updates: tuple[TableUpdate, ...], location: str | None) -> TableMetadata:
    if not isinstance(base, TableMetadataV2):
        return update_table_metadata(base, updates, metadata_location=location)
    shared = _Sharing.model_construct(**dict(base))
    return TableMetadataV2.model_construct(**dict(update_table_metadata(shared, updates, metadata_location=location)))


def _upgraded(base: TableMetadata, updates: Sequence[TableUpdate]) -> tuple[TableMetadata, list[TableUpdate]]:
    """Format version 3 first: PyIceberg reads and changes it, and only refuses the step itself."""
    wanted = [update.format_version for update in updates if isinstance(update, UpgradeFormatVersionUpdate)]
    if not wanted or max(wanted) != NEWEST_FORMAT or base.format_version == NEWEST_FORMAT:
        return base, [
            update
            for update in updates
            if not (isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == base.format_version)
        ]
    fields: dict[str, Any] = {**dict(base), "format_version": NEWEST_FORMAT, "next_row_id": 0}
    others: list[TableUpdate] = [update for update in updates if not isinstance(update, UpgradeFormatVersionUpdate)]
    # It has to count as a change even if it is the only one.
    if not others:
        others.append(SetLocationUpdate(location=base.location))
    return TableMetadataV3.model_construct(**fields), others


def _renumbered(base: TableMetadata, updates: Sequence[TableUpdate]) -> Iterator[TableUpdate]:
    """The same updates with ids that are free. What is there already is not added again, only meant."""
    schemas, specs, orders = list(base.schemas), list(base.partition_specs), list(base.sort_orders)
    schema_id: int | None = None
    spec_id: int | None = None
    order_id: int | None = None
    present = set(base.properties)
    for update in updates:
        match update:
            case AddSchemaUpdate():
                schema = _placed_schema(update.schema_, schemas)
                schema_id = schema.schema_id
                if all(known.schema_id != schema_id for known in schemas):
                    schemas.append(schema)
                    yield update.model_copy(update={"schema_": schema})
            case SetCurrentSchemaUpdate() if update.schema_id == _LAST_ADDED and schema_id is not None:
                yield update.model_copy(update={"schema_id": schema_id})
            case AddPartitionSpecUpdate():
                spec = _placed_spec(update.spec, specs)
                spec_id = spec.spec_id
                if all(known.spec_id != spec_id for known in specs):
                    specs.append(spec)
                    yield AddPartitionSpecUpdate(spec=spec)
            case SetDefaultSpecUpdate() if update.spec_id == _LAST_ADDED and spec_id is not None:
                yield update.model_copy(update={"spec_id": spec_id})
            case AddSortOrderUpdate():
                order = _placed_order(update.sort_order, orders)
                order_id = order.order_id
                if all(known.order_id != order_id for known in orders):
                    orders.append(order)
                    yield update.model_copy(update={"sort_order": order})
            case SetDefaultSortOrderUpdate() if update.sort_order_id == _LAST_ADDED and order_id is not None:
                yield update.model_copy(update={"sort_order_id": order_id})
            case SetPropertiesUpdate():
                present |= set(update.updates)
                yield update
            case RemovePropertiesUpdate():
                removals = [key for key in update.removals if key in present]
                present -= set(removals)
                yield RemovePropertiesUpdate(removals=removals)
            case AddSnapshotUpdate() if base.format_version >= NEWEST_FORMAT and update.snapshot.added_rows is None:
                raise ValueError("Cannot add snapshot without added rows")
            case _:
                yield update


def _placed_schema(schema: Schema, known: Sequence[Schema]) -> Schema:
    for other in known:
        if other == schema:
            return other
    return schema.model_copy(update={"schema_id": _free(schema.schema_id, [other.schema_id for other in known])})


def _placed_spec(spec: PartitionSpec, known: Sequence[PartitionSpec]) -> PartitionSpec:
    for other in known:
        if other.fields == spec.fields:
            return other
    return PartitionSpec(*spec.fields, spec_id=_free(spec.spec_id, [other.spec_id for other in known]))


def _placed_order(order: SortOrder, known: Sequence[SortOrder]) -> SortOrder:
    for other in known:
        if other.fields == order.fields:
            return other
    return SortOrder(*order.fields, order_id=_free(order.order_id, [other.order_id for other in known]))


def _free(wanted: int, taken: Sequence[int]) -> int:
    return wanted if wanted not in taken else max(taken) + 1
