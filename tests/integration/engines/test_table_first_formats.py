"""Streams that begin as tables, with values in JSON or Protobuf: a real serializer writes by the derived schema,
engines change the columns, and the next version of the subject says so."""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.schema import Schema
from pyiceberg.types import (
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
from support.schemas.protobuf import message_class
from support.schemas.typed import TypedTopic, closing
from support.worlds.doors import duck
from support.worlds.source import Node, source_node

from lakestream.schemas.descriptors import compiled_descriptors
from lakestream.table.shape import KIND_TYPED

COLUMNS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "item", StringType()),
    NestedField(3, "amount", DoubleType()),
    NestedField(4, "at", TimestamptzType()),
    NestedField(5, "is_new", BooleanType()),
    NestedField(6, "place", StructType(NestedField(7, "city", StringType()), NestedField(8, "zip", LongType()))),
    NestedField(9, "tags", ListType(10, StringType(), element_required=False)),
    NestedField(11, "counts", MapType(12, StringType(), 13, LongType(), value_required=False)),
)
Write = Callable[[dict[str, Any]], bytes]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("formats"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


@pytest.fixture
def rest(node: Node) -> Iterator[RestCatalog]:
    with closing(RestCatalog("lake", uri=node.uri)) as catalog:
        yield catalog


def latest(node: Node, topic: str) -> tuple[str, str]:
    """The text and its format."""
    found = httpx.get(f"{node.registry}/subjects/{topic}-value/versions/latest").json()
    return found["schema"], found.get("schemaType", "AVRO")


def message_of(text: str, topic: str) -> Any:
    """As protoc would generate it."""
    files = FileDescriptorSet.FromString(base64.b64decode(compiled_descriptors(text, ())))
    files.file[-1].name = f"{topic}.proto"
    return message_class(files, topic)


def writer(topic: TypedTopic) -> Write:
    """Confluent's serializer for the subject's latest schema."""
    text, kind = latest(topic.node, topic.name)
    where = SerializationContext(topic.name, MessageField.VALUE)
    if kind == "JSON":
        as_json = JSONSerializer(text, topic.registry)
        return lambda value: as_json(value, where)
    message = message_of(text, topic.name)
    as_protobuf = ProtobufSerializer(message, topic.registry, {"use.deprecated.format": False})
    return lambda value: as_protobuf(message(**value), where)


def order(kind: str, number: int) -> dict[str, Any]:
    at = {"seconds": number} if kind == "protobuf" else datetime.fromtimestamp(number, UTC).isoformat()
    full = {"amount": number / 4, "place": {"city": "Köln", "zip": 50667}, "tags": ["a", "b"], "counts": {"x": 1}}
    return {"id": number, "item": f"item {number}", "at": at, "is_new": False, **(full if number % 2 else {})}


@pytest.mark.parametrize("kind", ["json", "protobuf"])
def test_a_serializer_writes_by_the_derived_schema_and_the_table_is_altered(
    node: Node, rest: RestCatalog, kind: str
) -> None:
    name = f"orders_{kind}"
    properties = {"lakestream.stream": "true", "lakestream.partitions": "1", "lakestream.value.schema": kind}
    rest.create_table(f"default.{name}", COLUMNS, properties=properties)
    with SchemaRegistryClient({"url": node.registry}) as registry:
        topic = TypedTopic(node, name, registry)
        write = writer(topic)
        topic.produce([write(order(kind, number)) for number in range(20)])
        assert topic.move() == 20
        assert registry.get_versions(f"{name}-value") == [1], "the derived schema is the one that they used"
        rows = topic.rows()
        assert {(row["_kind"], row["_value"]) for row in rows.values()} == {(KIND_TYPED, None)}
        expected = order(kind, 7) | {"at": datetime.fromtimestamp(7, UTC), "counts": [("x", 1)]}
        assert {column: rows[7][column] for column in expected} == expected
        assert [rows[6][column] for column in ("amount", "place")] == [None, None]
        topic.check_fetched()
        with rest.load_table(f"default.{name}").update_schema() as change:
            change.add_column("note", StringType(), doc="by hand")
            change.add_column(("place", "street"), StringType())
        assert rest.load_table(f"default.{name}").schema().find_field("note").doc == "by hand"
        newer = writer(topic)
        place = {"city": "Ulm", "street": "Gasse"}
        topic.produce([newer(order(kind, 20) | {"note": "n", "place": place}), write(order(kind, 21))])
        topic.move()
        assert registry.get_versions(f"{name}-value") == [1, 2]
        assert topic.column("note") == [None] * 20 + ["n", None]
        assert topic.column("place")[20] == place | {"zip": None}
        assert set(topic.column("_kind")) == {KIND_TYPED}
        topic.check_fetched()
        topic.merge()
        topic.check_fetched()


def test_fields_in_protobuf_are_known_by_their_numbers(node: Node, rest: RestCatalog) -> None:
    """So they can be renamed, widened, dropped; their numbers are never given again."""
    properties = {"lakestream.stream": "true", "lakestream.partitions": "1", "lakestream.value.schema": "protobuf"}
    columns = Schema(*(NestedField(n, name, IntegerType()) for n, name in enumerate(("id", "count", "old"), 1)))
    rest.create_table("default.numbers", columns, properties=properties)
    with SchemaRegistryClient({"url": node.registry}) as registry:
        topic = TypedTopic(node, "numbers", registry)
        topic.produce([writer(topic)({"id": 1, "count": 2, "old": 3})])
        with rest.load_table("default.numbers").update_schema(allow_incompatible_changes=True) as change:
            change.rename_column("count", "pieces")
            change.update_column("id", LongType())
            change.delete_column("old")
            change.add_column("more", StringType())
        text, _ = latest(node, "numbers")
        for line in ("int64 id = 1;", "int32 pieces = 2;", "reserved 3;", 'reserved "old";', "string more = 4;"):
            assert line in text
        topic.produce([writer(topic)({"id": 1 << 40, "pieces": 5, "more": "m"})])
        topic.move()
        rows = topic.rows()
        found = [[rows[n][column] for column in ("id", "pieces", "more", "old")] for n in range(2)]
        assert found == [[1, 2, None, 3], [1 << 40, 5, "m", None]]
        topic.check_fetched()


def test_values_without_framing_by_the_columns_of_a_table(node: Node) -> None:
    """Whoever has no serializer writes JSON as it is."""
    with duck(node.uri.removesuffix("/iceberg")) as engine:
        engine.execute(
            "CREATE TABLE lake.default.plain (id BIGINT, item VARCHAR) WITH ('lakestream.stream'='true',"
            " 'lakestream.partitions'='1', 'lakestream.value.format'='json')"
        )
        with SchemaRegistryClient({"url": node.registry}) as registry:
            topic = TypedTopic(node, "plain", registry)
            topic.produce([b'{"id": 1, "item": "a"}', b'{"item":"b"}'])
            topic.move()
            engine.execute("ALTER TABLE lake.default.plain ADD COLUMN note VARCHAR")
            topic.produce([b'{"id": 3, "note": "n"}', b"no json"])
            topic.move()
            query = "SELECT id, item, note, _kind FROM lake.default.plain ORDER BY _offset"
            found = [(1, "a", None, 2), (None, "b", None, 2), (3, None, "n", 2), (None, None, None, 0)]
            assert engine.execute(query).fetchall() == found
            topic.check_fetched()


@pytest.mark.parametrize(
    ("kind", "column", "sentence"),
    [
        ("json", IntegerType(), "column x cannot be int in JSON: use long"),
        ("json", FloatType(), "column x cannot be float in JSON: use double"),
        ("json", TimestampType(), "column x cannot be timestamp in JSON"),
        ("json", DecimalType(9, 2), "column x cannot be decimal in JSON: use double, or string"),
        ("json", MapType(2, LongType(), 3, LongType(), value_required=False), "keys of a map are text in JSON"),
        ("protobuf", DateType(), "column x cannot be date in Protobuf: use int"),
        ("protobuf", TimestampType(), "column x cannot be timestamp in Protobuf"),
        ("protobuf", DecimalType(9, 2), "column x cannot be decimal in Protobuf"),
        (
            "protobuf",
            ListType(2, ListType(3, LongType(), element_required=False), element_required=False),
            "list inside of a list or map, which Protobuf has not",
        ),
        ("protobuf", MapType(2, DoubleType(), 3, LongType(), value_required=False), "x has keys of type double"),
        ("thrift", LongType(), "lakestream.value.schema=thrift cannot be: it takes one of avro, json, protobuf"),
    ],
)
def test_what_a_format_has_no_word_for(
    node: Node, rest: RestCatalog, kind: str, column: IcebergType, sentence: str
) -> None:
    with pytest.raises(BadRequestError, match=sentence):
        rest.create_table(
            "default.wrong",
            Schema(NestedField(1, "x", column)),
            properties={"lakestream.stream": "true", "lakestream.value.schema": kind},
        )
    assert node.run(node.topics.by_names(["wrong"])) == {}


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"lakestream.value.format": "string"}, "is one of schema_id, latest, json, not string"),
        ({"lakestream.value.format": "json", "lakestream.value.schema": "avro"}, "lakestream.value.format=json it is"),
    ],
)
def test_formats_that_do_not_go_together(
    node: Node, rest: RestCatalog, properties: dict[str, str], sentence: str
) -> None:
    with pytest.raises(BadRequestError, match=sentence):
        rest.create_table("default.wrong", COLUMNS, properties={"lakestream.stream": "true", **properties})


def test_a_field_in_json_is_not_renamed(node: Node, rest: RestCatalog) -> None:
    properties = {"lakestream.stream": "true", "lakestream.value.schema": "json"}
    rest.create_table("default.named", Schema(NestedField(1, "id", LongType())), properties=properties)
    with pytest.raises(BadRequestError, match="fields in JSON are known by their names"):
        with rest.load_table("default.named").update_schema() as change:
            change.rename_column("id", "number")
    assert list(json.loads(latest(node, "named")[0])["properties"]) == ["id"]
