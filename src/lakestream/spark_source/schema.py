"""The columns that Spark sees: those of the stream's table, whether a row comes from the table or from the tail."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakestream.errors import RequestError
from lakestream.table.shape import RAW, Kind, TableColumn, TableShape

_PLAIN_TYPES: Final[dict[Kind, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampNTZType(),
    "timestamptz": TimestampType(),
    "string": StringType(),
    "binary": BinaryType(),
}


def spark_schema(shape: TableShape) -> StructType:
    return StructType([*map(_field, shape.columns)])


def _field(column: TableColumn) -> StructField:
    return StructField(column.name, _type(column), nullable=not column.is_required)


def _type(column: TableColumn) -> DataType:
    if column.kind == "list":
        [element] = column.below
        return ArrayType(_type(element), containsNull=not element.is_required)
    if column.kind == "map":
        key, value = column.below
        return MapType(_type(key), _type(value), valueContainsNull=not value.is_required)
    if column.kind == "decimal":
        return DecimalType(column.precision, column.scale)
    if column.kind == "struct":
        return StructType([*map(_field, column.below)])
    return _PLAIN_TYPES[column.kind]


SPARK_SCHEMA: Final = spark_schema(RAW)


def wanted_columns(schema: StructType, shape: TableShape = RAW) -> Sequence[str]:
    """The columns of a schema that the user gave in order to read fewer. `RequestError` if it asks for others."""
    known = {field.name: field.dataType for field in spark_schema(shape).fields}
    for field in schema.fields:
        if field.name not in known:
            raise RequestError(f"there is no column {field.name}: a stream has {', '.join(known)}")
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise RequestError(
                f"column {field.name} is {known[field.name].simpleString()}, not {field.dataType.simpleString()}"
            )
    return tuple(field.name for field in schema.fields)
