"""A derived table in Iceberg's words: its properties, its first metadata, its schema when the stream's has changed."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import msgspec
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetPropertiesUpdate, TableUpdate
from pyiceberg.transforms import BucketTransform

from lakestream.errors import StorageError
from lakestream.metadata.names.derived import DerivedRow
from lakestream.table.deriving.recipe import DerivedShape, parse_recipe, recipe_text
from lakestream.table.schema import DATA_FOLDER, frontier_text, iceberg_schema, parse_frontier
from lakestream.table.shape import TableColumn, TableShape

FROM_PROPERTY: Final = "lakestream.derived-from"
"""The topic's id."""
TOPIC_PROPERTY: Final = "lakestream.derived-topic"
KIND_PROPERTY: Final = "lakestream.derived-kind"
FRONTIER_PROPERTY: Final = "lakestream.derived-frontier"
"""How far the stream's rows are in it: another word than a stream's own, so that nobody takes it for a stream's."""
RECIPE_PROPERTY: Final = "lakestream.derived-recipe"
COLUMNS_PROPERTY: Final = "lakestream.derived-columns"
_PROPERTIES: Final[dict[str, str]] = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_COLUMNS: Final = msgspec.json.Decoder(tuple[TableColumn, ...])


def said(frontier: tuple[int, ...]) -> Mapping[str, str]:
    """In the table's properties and in the summary of each of its snapshots."""
    return {FRONTIER_PROPERTY: frontier_text(frontier)}


def frontier_in(table: str, metadata: TableMetadata) -> tuple[int, ...]:
    """Raises `StorageError`."""
    text = metadata.properties.get(FRONTIER_PROPERTY)
    try:
        return parse_frontier(text or "")
    except ValueError as error:
        raise StorageError(f"{table}: property {FRONTIER_PROPERTY} is no frontier: {text!r}") from error


def shape_in(table: str, metadata: TableMetadata) -> DerivedShape:
    """Raises `StorageError`."""
    try:
        recipe = parse_recipe(metadata.properties.get(RECIPE_PROPERTY, ""))
        return DerivedShape(recipe, TableShape(_COLUMNS.decode(metadata.properties.get(COLUMNS_PROPERTY, ""))))
    except (ValueError, msgspec.MsgspecError) as error:
        raise StorageError(f"{table} does not tell how it is derived: {error}") from error


def first_derived(
    row: DerivedRow, topic: str, shape: DerivedShape, location: str, frontier: tuple[int, ...], now_ms: int
) -> TableMetadata:
    schema, spec = iceberg_schema(shape.columns), _spec(shape)
    properties = {
        **_PROPERTIES,
        **_told(shape),
        **said(frontier),
        FROM_PROPERTY: str(row.topic_id),
        TOPIC_PROPERTY: topic,
        KIND_PROPERTY: row.kind,
        "write.metadata.path": f"{location}/_iceberg",
        "write.data.path": f"{location}/{DATA_FOLDER}",
        **{f"write.metadata.metrics.column.{key.name}": "truncate(64)" for key in shape.keys},
    }
    table_id: UUID = row.table_id
    return TableMetadataV2.model_validate(
        {
            "table-uuid": table_id,
            "location": location,
            "schemas": [schema],
            "current-schema-id": schema.schema_id,
            "last-column-id": schema.highest_field_id,
            "partition-specs": [spec],
            "default-spec-id": spec.spec_id,
            "last-partition-id": max(spec.last_assigned_field_id, 999),
            "sort-orders": [UNSORTED_SORT_ORDER],
            "default-sort-order-id": UNSORTED_SORT_ORDER.order_id,
            "properties": properties,
            "last-updated-ms": now_ms,
        }
    )


def evolved(shape: DerivedShape) -> tuple[TableUpdate, ...]:
    """What gives a table these columns."""
    schema = Schema(*iceberg_schema(shape.columns).fields)
    return (
        AddSchemaUpdate.model_validate({"schema": schema}),
        SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
        SetPropertiesUpdate(updates=_told(shape)),
    )


def _told(shape: DerivedShape) -> dict[str, str]:
    columns = msgspec.json.encode(shape.columns.columns).decode()
    return {RECIPE_PROPERTY: recipe_text(shape.recipe), COLUMNS_PROPERTY: columns}


def _spec(shape: DerivedShape) -> PartitionSpec:
    if not shape.recipe.buckets:
        return PartitionSpec(spec_id=0)
    key = shape.keys[0]
    transform: BucketTransform[Any] = BucketTransform(shape.recipe.buckets)
    return PartitionSpec(PartitionField(key.field_id, 1000, transform, f"{key.name}_bucket"), spec_id=0)
