"""What other engines see of typed rows, and what becomes of these when engines rewrite them: old and new schemas, wider
columns, fields inside of fields."""

import base64
import json
import math
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as ValueSchema
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError
from support.schemas.protobuf import message_class
from support.schemas.typed import ORDER, TypedTopic, closing, order, typed_topic
from support.worlds.source import Node, source_node

from lakestream.cli.tables.query import connect
from lakestream.schemas.descriptors import compiled_descriptors
from lakestream.table.shape import KIND_RAW, KIND_TOMBSTONE, KIND_TYPED, KIND_TYPED_AND_RAW

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "street", "type": "string"}]}
DEEPER = PLACE | {"fields": [*PLACE["fields"], {"name": "number", "type": ["null", "int"], "default": None}]}  # type: ignore[misc]
FIELDS: list[dict[str, Any]] = ORDER["fields"]
STEPS: dict[str, list[dict[str, Any]]] = {
    "first": FIELDS,
    "added": [*FIELDS, {"name": "place", "type": ["null", PLACE], "default": None}],
    "inside": [*FIELDS, {"name": "place", "type": ["null", DEEPER], "default": None}],
    "wider": [{"name": "id", "type": "long"}, *FIELDS[1:]],
    "optional": [{"name": "id", "type": "int"}, {"name": "item", "type": ["null", "string"]}, FIELDS[2]],
    "reordered": FIELDS[::-1],
    "dropped": FIELDS[1:],
}
"""A schema's fields, one version after the other. Producers that have the older ones go on."""
_lakes = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("engines"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


def value_of(step: str, number: int) -> dict[str, Any]:
    found = order(number)
    if step == "added":
        found["place"] = {"street": f"street {number}"}
    if step == "inside":
        found["place"] = {"street": f"street {number}", "number": number if number % 2 else None}
    if step == "wider":
        found["id"] = (1 << 40) + number
    if step == "optional" and number % 2:
        found["item"] = None
    if step == "dropped":
        del found["id"]
    return found


def fill(topic: TypedTopic) -> list[dict[str, Any]]:
    """All versions, each in a commit of its own with records of all before."""
    topic.registry.set_compatibility(f"{topic.name}-value", "NONE")
    made: list[dict[str, Any]] = []
    writers = []
    for step, fields in STEPS.items():
        writers.append((step, topic.avro(ORDER | {"fields": fields})))
        values = []
        for _ in range(2):
            for known, write in writers:
                made.append(value_of(known, len(made)))
                values.append(write(made[-1]))
        topic.produce(values)
        assert topic.move() == len(values)
    return made


def check(topic: TypedTopic, made: list[dict[str, Any]]) -> None:
    rows = topic.rows()
    for offset, value in enumerate(made):
        row, place = rows[offset], value.get("place")
        expected = {name: value.get(name) for name in ("id", "item", "amount")}
        assert {name: row[name] for name in expected} == expected, offset
        assert row["place"] == (None if place is None else {"street": place["street"], "number": place.get("number")})
        assert (row["_kind"], row["_value"]) == (KIND_TYPED, None)
    topic.check_fetched()


def test_every_version_of_a_schema_is_read_by_all(node: Node) -> None:
    with typed_topic(node, "versions") as topic:
        made = fill(topic)
        check(topic, made)
        wide = sum((each.get("id") or 0) > 1 << 39 for each in made)
        names = [column.name for column in topic.view().shape.value_columns]
        assert names == ["id", "item", "amount", "place"]
        duck = connect(node.uri)
        query = "SELECT count(*), count(*) FILTER (id < 50), max(place.number) FROM versions WHERE id > {}"
        numbers = [each.get("place", {}).get("number") or 0 for each in made]
        narrow = sum(0 < (each.get("id") or 0) < 50 for each in made)
        everything = sum((each.get("id") or 0) > 0 for each in made)
        assert duck.execute(query.format(0)).fetchone() == (everything, narrow, max(numbers))
        assert duck.execute(query.format(1 << 39)).fetchone() == (wide, 0, None)
        duck.close()
        with closing(RestCatalog("lake", uri=node.uri)) as catalog:
            found = catalog.load_table("default.versions").scan(row_filter="id > 549755813888").to_arrow()
        assert found.num_rows == wide
        topic.merge()
        assert len(topic.view().files) == 1
        check(topic, made)


@pytest.mark.filterwarnings("ignore:Parquet writer option")
def test_a_change_of_a_typed_column_is_refused(node: Node) -> None:
    with typed_topic(node, "changed") as topic:
        topic.produce([topic.avro(ORDER)(order(number)) for number in range(4)])
        topic.move()
        with closing(RestCatalog("lake", uri=node.uri)) as catalog:
            table = catalog.load_table("default.changed")
            rows = table.scan().to_arrow()
            place = rows.schema.get_field_index("item")
            other = rows.set_column(place, rows.schema.field(place), [["x"] * 4])
            with pytest.raises(ForbiddenError, match="offset 0"):
                table.overwrite(other)
        topic.check_fetched()
        topic.alter("table.updates", "record")
        with closing(RestCatalog("lake", uri=node.uri)) as catalog:
            catalog.load_table("default.changed").overwrite(other)
        changed = topic.avro(ORDER)
        topic.sent = {number: changed(order(number) | {"item": "x"}) for number in range(4)}
        topic.check_fetched()


@pytest.mark.spark
def test_a_rewrite_by_spark_keeps_every_version(node: Node, spark: Any) -> None:
    with typed_topic(node, "rewritten") as topic:
        made = fill(topic)
        lake = rewrite_sorted(node, spark, topic)
        check(topic, made)
        [row] = spark.sql(f"SELECT count(id), max(place.number) FROM {lake}.default.rewritten").collect()
        numbers = [each.get("place", {}).get("number") or 0 for each in made]
        assert tuple(row) == (sum("id" in each for each in made), max(numbers))


def rewrite_sorted(node: Node, spark: Any, topic: TypedTopic) -> str:
    """All files, by Spark, in another order. The catalog's name."""
    lake = f"typed{next(_lakes)}"
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": node.uri,
        ".cache-enabled": "false",
    }.items():
        spark.conf.set(f"spark.sql.catalog.{lake}{name}", value)
    before = {file.path for file in topic.view().files}
    spark.sql(
        f"CALL {lake}.system.rewrite_data_files(table => 'default.{topic.name}', strategy => 'sort',"
        " sort_order => 'item DESC', options => map('rewrite-all', 'true'))"
    )
    assert not before & {file.path for file in topic.view().files}
    return lake


JSON_VALUES = [
    b'{"id": 1, "item": "b", "price": 1.50, "at": "2024-05-01T10:11:12.5Z", "tags": {"k": "v", "l": null}}',
    b'{"id":2,"item":"d \\u00e9","price":1e-7,"lines":[{"count":1},{"count":null},{}],"tags":{}}',
    b'{\n  "item": "a",\n  "id": 3,\n  "lines": []\n}',
    '{"item":"käse\U0001f9c0","id":null,"at":"1969-12-31T23:59:59.999999+02:00"}'.encode(),
    b'{"id":5,"item":"c","unknown":[1]}',
    b'{"id":6,"item":"c","id":6}',
    b'{"id":7,',
    b"{}",
    None,
]
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": ["integer", "null"]},
        "item": {"type": "string"},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"count": {"type": ["integer", "null"]}}}},
        "tags": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    },
}
PROTO_SCHEMA = """
syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; optional string item = 2; double price = 3; google.protobuf.Timestamp at = 4; repeated Line lines = 5;
  map<string, sint32> tags = 6; oneof paid { string card = 7; bool cash = 8; } uint64 big = 9; bytes body = 10;
}
message Line { int32 count = 1; Size size = 2; repeated float grams = 3; }
enum Size { SMALL = 0; LARGE = 7; }
"""


def protobuf_values() -> list[bytes | None]:
    files = FileDescriptorSet.FromString(base64.b64decode(compiled_descriptors(PROTO_SCHEMA, ())))
    order: Any = message_class(files, "Order")
    lines = [{"count": 1, "size": "LARGE", "grams": [0.5, math.inf]}, {}]
    full = {"id": -1, "item": "b", "price": 1.5, "at": {"seconds": 5, "nanos": 1000}, "lines": lines, "cash": False}
    made = [full, full | {"item": "d", "tags": {"k": -7}, "body": b"\0\xff"}, {}, {"item": "", "big": 2**64 - 1}]
    values = [order(**each).SerializeToString(deterministic=True) for each in made]
    return [*values, values[0] + b"\xa0\x06\x01", b"\xff", None]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["json", "protobuf"])
def test_a_rewrite_by_spark_keeps_the_bytes(node: Node, spark: Any, kind: str) -> None:
    """Of what is columns alone, beside columns, and neither."""
    with typed_topic(node, f"sorted_{kind}", value_format="latest") as topic:
        text = json.dumps(JSON_SCHEMA) if kind == "json" else PROTO_SCHEMA
        topic.registry.register_schema(f"{topic.name}-value", ValueSchema(text, kind.upper()))
        for _ in range(3):
            topic.produce((JSON_VALUES if kind == "json" else protobuf_values()) * 5)
            topic.move()
        before = topic.rows()
        assert {row["_kind"] for row in before.values()} == {KIND_RAW, KIND_TOMBSTONE, KIND_TYPED, KIND_TYPED_AND_RAW}
        for _ in range(2):
            rewrite_sorted(node, spark, topic)
            assert sorted(map(repr, topic.rows().items())) == sorted(map(repr, before.items()))
            topic.check_fetched()
