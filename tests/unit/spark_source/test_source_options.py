"""What a user may say of a Spark read or write."""

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from lakestream.errors import RequestError
from lakestream.spark_source.options import EARLIEST, LATEST, Position, parse
from lakestream.spark_source.schema import SPARK_SCHEMA, wanted_columns
from lakestream.spark_source.writing import columns_of
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.shape import RAW

BASE = {"topic": "orders", "kafka.bootstrap.servers": "h:1", "uri": "http://h:2/iceberg"}


def test_names_are_told_apart_without_case_and_sorted_by_whom_they_are_for() -> None:
    options = parse(BASE | {"kafka.Client.Id": "me", "catalog.token": "t", "MAXOFFSETSPERTRIGGER": "7"})
    assert (options.topic, options.table) == ("orders", None)
    assert options.kafka == {"bootstrap.servers": "h:1", "client.id": "me"}
    assert options.catalog == {"uri": "http://h:2/iceberg", "token": "t"}
    assert options.max_offsets_per_trigger == 7
    assert parse({**BASE, "table": "sales.orders"}).table == "sales.orders"
    assert parse({"path": "p", "kafka.bootstrap.servers": "h:1"}).topic == "p"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position(EARLIEST)),
        ("Latest", Position(LATEST)),
        ('{"0": 23, "1": -1}', Position(EARLIEST, {0: 23, 1: -1})),
        ('{"orders": {"3": -2}}', Position(EARLIEST, {3: -2})),
    ],
)
def test_starting_offsets(text: str, position: Position) -> None:
    assert parse(BASE | {"startingOffsets": text}).starting == position


def test_partitions_that_ending_offsets_do_not_name_end_at_the_latest() -> None:
    assert parse(BASE | {"endingOffsets": '{"0": 5}'}).ending == Position(LATEST, {0: 5})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topic": ""}, "name the topic"),
        ({"startingoffset": "earliest"}, "unknown option startingoffset"),
        ({"startingOffsets": "soon"}, "startingOffsets is earliest, latest or JSON"),
        ({"startingOffsets": "{}"}, "startingOffsets is earliest, latest or JSON"),
        ({"startingOffsets": "[1]"}, "startingOffsets is earliest, latest or JSON"),
        ({"startingOffsets": '{"0": -3}'}, "startingOffsets is earliest, latest or JSON"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "not both"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"snapshotId": "x"}, "whole number"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        parse(BASE | change)


def test_the_brokers_must_be_named() -> None:
    with pytest.raises(RequestError, match=r"kafka\.bootstrap\.servers"):
        parse({"topic": "t"})


def test_spark_sees_the_columns_of_the_table() -> None:
    assert SPARK_SCHEMA.fieldNames() == arrow_schema(RAW).names
    assert [field.nullable for field in SPARK_SCHEMA] == [field.nullable for field in arrow_schema(RAW)]


def test_fewer_columns_may_be_asked_for_in_any_order() -> None:
    asked = StructType([SPARK_SCHEMA["_value"], SPARK_SCHEMA["_offset"]])
    assert wanted_columns(asked) == ("_value", "_offset")
    with pytest.raises(RequestError, match="no column price"):
        wanted_columns(StructType([StructField("price", IntegerType())]))
    with pytest.raises(RequestError, match="_offset is bigint, not string"):
        wanted_columns(StructType([StructField("_offset", StringType())]))


def test_a_record_takes_its_parts_from_either_kind_of_name() -> None:
    assert columns_of(SPARK_SCHEMA) == {
        "partition": "_stream_partition",
        "timestamp": "_timestamp",
        "key": "_key",
        "headers": "_headers",
        "value": "_value",
    }
    named = StructType([StructField("key", StringType()), StructField("value", StringType())])
    assert columns_of(named) == {"key": "key", "value": "value"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([StructField("key", StringType())], "needs a value"),
        ([StructField("value", IntegerType())], "column value is int"),
        ([StructField("value", StringType()), StructField("price", IntegerType())], "price has no place"),
        ([StructField("value", StringType()), SPARK_SCHEMA["_value"]], "both the record's value"),
    ],
)
def test_columns_that_make_no_record_are_refused(fields: list[StructField], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        columns_of(StructType(fields))
