"""The columns that Spark sees: those of the stream's table, whether a row comes from the table or from the tail."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakestream.errors import RequestError

SPARK_SCHEMA: Final = StructType(
    [
        StructField("_stream_partition", IntegerType(), nullable=False),
        StructField("_offset", LongType(), nullable=False),
        StructField("_timestamp", TimestampType()),
        StructField("_timestamp_type", IntegerType(), nullable=False),
        StructField("_kind", IntegerType(), nullable=False),
        StructField("_key", BinaryType()),
        StructField(
            "_headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
        StructField("_headers_raw", BinaryType()),
        StructField("_value", BinaryType()),
        StructField("_schema_id", IntegerType()),
        StructField("_crc", IntegerType(), nullable=False),
    ]
)


def wanted_columns(schema: StructType) -> Sequence[str]:
    """The columns of a schema that the user gave in order to read fewer. `RequestError` if it asks for others."""
    known = {field.name: field.dataType for field in SPARK_SCHEMA.fields}
    for field in schema.fields:
        if field.name not in known:
            raise RequestError(f"there is no column {field.name}: a stream has {', '.join(known)}")
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise RequestError(
                f"column {field.name} is {known[field.name].simpleString()}, not {field.dataType.simpleString()}"
            )
    return tuple(field.name for field in schema.fields)
