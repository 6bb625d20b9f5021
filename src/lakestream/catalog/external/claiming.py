"""Taking over a table of an external catalog for a topic: which tables can be, and what the commit says. Pure.

No pointer of ours can take a table from whoever writes it there. So the commit that takes it over marks it as this
cluster's and adds an empty snapshot: every commit that was planned before expects another, and is refused by the
catalog, whoever makes it. A cluster that had the table then finds a mark that is not its own, and stops.

A table without snapshots has none to expect, and there are catalogs that let any number of first commits through. Those
compare the partition specs; so such a table must be without a spec, and gets the stream's, which is never unmade.
"""

from pyiceberg.partitioning import PARTITION_FIELD_ID_START
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from lakestream.catalog.rules.vector import left_frontier
from lakestream.errors import InvalidSetting, LakestreamError, StorageError, Unavailable
from lakestream.table.schema import (
    CLUSTER_PROPERTY,
    FRONTIER_PROPERTY,
    LOCATION_PROPERTY,
    UNPARTITIONED,
    iceberg_schema,
    shape_of,
    stream_spec,
)
from lakestream.table.shape import TableShape


def check_mark(cluster: str, metadata: TableMetadata) -> None:
    """Raises `InvalidSetting` if the table is another cluster's, which may be writing it at this moment."""
    marked = metadata.properties.get(CLUSTER_PROPERTY)
    if marked not in (None, cluster):
        raise InvalidSetting(
            f"it is the table of cluster {marked}, which would have to stop writing it: when that is wanted, or that"
            f" cluster is no more, remove the table's property {CLUSTER_PROPERTY} and create the topic again"
        )


def claimed_frontier(metadata: TableMetadata) -> tuple[int, ...] | None:
    """How far whoever wrote the table came; None: no rows were ever in it. Raises `InvalidSetting` if the table cannot
    be taken over."""
    if not metadata.snapshots:
        _check_plain(metadata)
        return None
    if metadata.current_snapshot_id is None:
        raise InvalidSetting(f"its branch {MAIN_BRANCH} is missing")
    if FRONTIER_PROPERTY not in metadata.properties:
        raise InvalidSetting("it has rows that no stream wrote, which have no offsets to be read at")
    try:
        return left_frontier("it", metadata)
    except StorageError as error:
        raise InvalidSetting(f"a stream wrote it, and it was changed since: {error}") from error


def _check_plain(metadata: TableMetadata) -> None:
    last = metadata.last_partition_id or 0
    if list(metadata.partition_specs) != [UNPARTITIONED] or last >= PARTITION_FIELD_ID_START:
        raise InvalidSetting("it is partitioned, or was, and a stream partitions its table itself: make it without")
    if any(order.fields for order in metadata.sort_orders):
        raise InvalidSetting("it has a sort order, and a stream writes in the order of offsets: make it without one")


def claim_requirements(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """Beside those of every commit: schema and default spec."""
    main = {"ref": MAIN_BRANCH, "snapshot-id": metadata.current_snapshot_id}
    last = {"last-assigned-partition-id": metadata.last_partition_id}
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate(main),
        AssertLastAssignedPartitionId.model_validate(last),
    )


def claim_updates(metadata: TableMetadata, first: TableMetadata, cluster: str) -> tuple[TableUpdate, ...]:
    """All but the snapshot. `first` is what a table of the topic would begin with at the same place; one that a stream
    wrote has its shape already, and keeps its own settings."""
    mark = {CLUSTER_PROPERTY: cluster, LOCATION_PROPERTY: metadata.location}
    if metadata.snapshots:
        said = {key: value for key, value in first.properties.items() if key.startswith("lakestream.")}
        return (SetPropertiesUpdate(updates={**said, **mark}),)
    shape = shape_of(first.properties)
    return (
        *_schema_updates(metadata, shape),
        AddPartitionSpecUpdate(spec=stream_spec(shape)),
        SetDefaultSpecUpdate.model_validate({"spec-id": -1}),
        SetPropertiesUpdate(updates={**first.properties, **mark}),
    )


def unless_columns(metadata: TableMetadata, error: Unavailable) -> LakestreamError:
    """What to say of a commit that was not answered with yes or no. There are catalogs that never take new columns from
    PyIceberg, and answer as if they had failed."""
    if metadata.snapshots or len(_schema_updates(metadata, shape_of(metadata.properties))) == 1:
        return error
    return InvalidSetting(
        f"whether the catalog takes the columns that it lacks is not known ({error}): try again, or make it with all"
        " columns of a stream's table, in their order"
    )


def _schema_updates(metadata: TableMetadata, shape: TableShape) -> tuple[TableUpdate, ...]:
    """Columns that are there stay first: a Metastore lets none of another type take the place of one."""
    ours = iceberg_schema(shape)
    known = next((each for each in metadata.schemas if each.as_struct() == ours.as_struct()), None)
    if known is not None:
        return (SetCurrentSchemaUpdate.model_validate({"schema-id": known.schema_id}),)
    free = max(each.schema_id for each in metadata.schemas) + 1
    names = [field.name for field in metadata.schema().fields]
    first = [ours.find_field(name) for name in names]
    schema = Schema(*first, *(each for each in ours.fields if each.name not in names), schema_id=free)
    return (
        AddSchemaUpdate.model_validate({"schema": schema}),
        SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
    )
