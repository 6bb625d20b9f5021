"""The shape of a stream's table: columns, partition specs, properties.

Formats, decided once. Field ids 1..99 are ours; value columns start at 100.
"""

from typing import Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

TOPIC_ID_PROPERTY: Final = "lakestream.topic-id"
TOPIC_PROPERTY: Final = "lakestream.topic"
"""The topic's name, for people: a table may go by another."""
FRONTIER_PROPERTY: Final = "lakestream.frontier"
CLUSTER_PROPERTY: Final = "lakestream.cluster-id"
"""In an external catalog: the cluster whose table it is, and in a snapshot's summary the one that made it."""
LOCATION_PROPERTY: Final = "lakestream.location"
"""In an external catalog, of a table that a topic goes on in: where it was then, which need not be a folder of ours."""
DATA_FOLDER: Final = "_data"
"""Below a table's location. Delta's VACUUM passes folders by that begin so: it would delete what only Iceberg names."""
OFFSET_WINDOW: Final = 1_048_576
"""Width of the offset windows that partition the table: a foreign sort stays inside one."""

KIND_RAW: Final = 0
KIND_TOMBSTONE: Final = 1
KIND_TYPED: Final = 2
KIND_TYPED_AND_RAW: Final = 3

RAW_SCHEMA: Final = Schema(
    NestedField(1, "_stream_partition", IntegerType(), required=True),
    NestedField(2, "_offset", LongType(), required=True),
    NestedField(3, "_timestamp", TimestamptzType(), required=False),
    NestedField(4, "_timestamp_type", IntegerType(), required=True),
    NestedField(5, "_kind", IntegerType(), required=True),
    NestedField(6, "_key", BinaryType(), required=False),
    NestedField(
        7,
        "_headers",
        ListType(
            element_id=8,
            element_type=StructType(
                NestedField(9, "key", StringType(), required=False),
                NestedField(10, "value", BinaryType(), required=False),
            ),
            element_required=False,
        ),
        required=False,
    ),
    NestedField(11, "_headers_raw", BinaryType(), required=False),
    NestedField(12, "_value", BinaryType(), required=False),
    NestedField(13, "_schema_id", IntegerType(), required=False),
    NestedField(14, "_crc", IntegerType(), required=True),
)

UNPARTITIONED: Final = PartitionSpec(spec_id=0)
STREAM_SPEC: Final = PartitionSpec(
    PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="_stream_partition"),
    PartitionField(source_id=2, field_id=1001, transform=TruncateTransform(width=OFFSET_WINDOW), name="_offset_window"),
    spec_id=1,
)

PROPERTIES: Final[dict[str, str]] = {
    "format-version": "2",
    "write.metadata.metrics.column._stream_partition": "full",
    "write.metadata.metrics.column._offset": "full",
    "write.metadata.metrics.column._timestamp": "full",
    "write.delete.isolation-level": "snapshot",
    "write.update.isolation-level": "snapshot",
    "write.merge.isolation-level": "snapshot",
    "write.delete.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    "write.merge.mode": "copy-on-write",
    "commit.retry.num-retries": "20",
    "write.parquet.row-group-size-bytes": str(16 * 1024 * 1024),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""At creation. `write.metadata.path` and `write.data.path` are added with the table's location: its folders `_iceberg`
and `_data`."""


def frontier_text(frontier: tuple[int, ...]) -> str:
    return ",".join(map(str, frontier))


def parse_frontier(text: str) -> tuple[int, ...]:
    """Raises ValueError unless it is a comma separated vector of non-negative numbers."""
    frontier = tuple(int(part) for part in text.split(",")) if text else ()
    if any(offset < 0 for offset in frontier):
        raise ValueError(f"a frontier cannot be negative: {text!r}")
    return frontier
