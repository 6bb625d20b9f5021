"""A stream's table in Iceberg's words: schema, partition specs and properties, by its shape."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakestream.errors import StorageError
from lakestream.table.shape import RAW, TableColumn, TableShape, parse_shape, shape_text

TOPIC_ID_PROPERTY: Final = "lakestream.topic-id"
TOPIC_PROPERTY: Final = "lakestream.topic"
"""The topic's name, for people: a table may go by another."""
FRONTIER_PROPERTY: Final = "lakestream.frontier"
CLUSTER_PROPERTY: Final = "lakestream.cluster-id"
"""In an external catalog: the cluster whose table it is, and in a snapshot's summary the one that made it."""
LOCATION_PROPERTY: Final = "lakestream.location"
"""In an external catalog, of a table that a topic goes on in: where it was then, which need not be a folder of ours."""
SHAPE_PROPERTY: Final = "lakestream.shape"
"""The table's shape in JSON, unless it is raw."""
ROW_GROUP_PROPERTY: Final = "write.parquet.row-group-size-bytes"
DATA_FOLDER: Final = "_data"
"""Below a table's location. Delta's VACUUM passes folders by that begin so: it would delete what only Iceberg names."""
OFFSET_WINDOW: Final = 1_048_576
"""Width of the offset windows that partition the table: a foreign sort stays inside one."""

_PRIMITIVES: Final[dict[str, IcebergType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "string": StringType(),
    "binary": BinaryType(),
}
FORMAT_VERSION: Final = 2
UNPARTITIONED: Final = PartitionSpec(spec_id=0)
STREAM_SPEC_ID: Final = 1
_KEPT_SHAPES: Final = 256


@lru_cache(_KEPT_SHAPES)
def iceberg_schema(shape: TableShape) -> Schema:
    """The columns of a table of this shape. Shared: never change it."""
    return Schema(*map(_field, shape.columns))


def _field(column: TableColumn) -> NestedField:
    return NestedField(column.field_id, column.name, _type(column), required=column.is_required)


def _type(column: TableColumn) -> IcebergType:
    if column.kind == "list":
        [element] = column.below
        return ListType(element.field_id, _type(element), element_required=element.is_required)
    if column.kind == "map":
        key, value = column.below
        return MapType(key.field_id, _type(key), value.field_id, _type(value), value_required=value.is_required)
    if column.kind == "decimal":
        return DecimalType(column.precision, column.scale)
    if column.kind == "struct":
        return StructType(*map(_field, column.below))
    return _PRIMITIVES[column.kind]


@lru_cache(_KEPT_SHAPES)
def stream_spec(shape: TableShape) -> PartitionSpec:
    """How files of one partition and offset window lie. Shared: never change it."""
    partition, offset = shape.field_id("_stream_partition"), shape.field_id("_offset")
    return PartitionSpec(
        PartitionField(partition, 1000, IdentityTransform(), "_stream_partition"),
        PartitionField(offset, 1001, TruncateTransform(width=OFFSET_WINDOW), "_offset_window"),
        spec_id=STREAM_SPEC_ID,
    )


_PROPERTIES: Final[dict[str, str]] = {
    "write.delete.isolation-level": "snapshot",
    "write.update.isolation-level": "snapshot",
    "write.merge.isolation-level": "snapshot",
    "write.delete.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    "write.merge.mode": "copy-on-write",
    "commit.retry.num-retries": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


def stream_properties(shape: TableShape) -> dict[str, str]:
    """At creation. `write.metadata.path` and `write.data.path` are added with the table's location: its folders
    `_iceberg` and `_data`."""
    said = {} if shape == RAW else {SHAPE_PROPERTY: shape_text(shape)}
    rows = {ROW_GROUP_PROPERTY: str(shape.row_group_bytes)}
    return {**full_metrics(shape), **_PROPERTIES, **rows, **said}


def full_metrics(shape: TableShape) -> dict[str, str]:
    """The properties that keep bounds by which consumers find records and retention their age."""
    return {f"write.metadata.metrics.column.{column.name}": "full" for column in shape.columns if column.is_full}


def shape_of(properties: Mapping[str, str]) -> TableShape:
    """Of the table with these properties. Raises `StorageError` for what no stream wrote there."""
    text = properties.get(SHAPE_PROPERTY)
    return RAW if text is None or TOPIC_ID_PROPERTY not in properties else _parsed(text)


@lru_cache(_KEPT_SHAPES)
def _parsed(text: str) -> TableShape:
    try:
        return parse_shape(text)
    except ValueError as error:
        raise StorageError(f"{SHAPE_PROPERTY} does not tell the shape of a table: {error}") from error


def frontier_text(frontier: tuple[int, ...]) -> str:
    return ",".join(map(str, frontier))


def parse_frontier(text: str) -> tuple[int, ...]:
    """Raises ValueError unless it is a comma separated vector of non-negative numbers."""
    frontier = tuple(int(part) for part in text.split(",")) if text else ()
    if any(offset < 0 for offset in frontier):
        raise ValueError(f"a frontier cannot be negative: {text!r}")
    return frontier
