"""The metadata that a stream's table begins with."""

from collections.abc import Mapping
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from lakestream.table.schema import (
    DATA_FOLDER,
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    UNPARTITIONED,
    iceberg_schema,
    stream_properties,
    stream_spec,
)
from lakestream.table.shape import TableShape


def first_metadata(
    topic_id: UUID, topic: str, location: str, frontier: Mapping[str, str], shape: TableShape, now_ms: int
) -> TableMetadata:
    """Built field by field: PyIceberg's own way in would number the columns anew."""
    schema, spec = iceberg_schema(shape), stream_spec(shape)
    properties = stream_properties(shape)
    properties["write.metadata.path"] = f"{location}/_iceberg"
    properties["write.data.path"] = f"{location}/{DATA_FOLDER}"
    properties[TOPIC_PROPERTY] = topic
    properties[TOPIC_ID_PROPERTY] = str(topic_id)
    properties |= frontier
    return TableMetadataV2.model_validate(
        {
            "table-uuid": topic_id,
            "location": location,
            "schemas": [schema],
            "current-schema-id": schema.schema_id,
            "last-column-id": schema.highest_field_id,
            "partition-specs": [UNPARTITIONED, spec],
            "default-spec-id": spec.spec_id,
            "last-partition-id": spec.last_assigned_field_id,
            "sort-orders": [UNSORTED_SORT_ORDER],
            "default-sort-order-id": UNSORTED_SORT_ORDER.order_id,
            "properties": properties,
            "last-updated-ms": now_ms,
        }
    )
