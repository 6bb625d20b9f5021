"""Topics whose values are columns: real serializers, the registry that is there, every door behind them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.types import StringType
from support.schemas.avro import written
from support.schemas.typed import ORDER, closing, order, typed_topic
from support.worlds.source import Node, source_node

from lakestream.table.shape import KIND_RAW, KIND_TOMBSTONE, KIND_TYPED, RAW


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("typed"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


def test_values_of_a_serializer_are_columns_and_come_back_to_the_byte(node: Node) -> None:
    with typed_topic(node, "orders") as topic:
        write = topic.avro(ORDER)
        orders = [order(number) for number in range(40)]
        topic.produce([write(each) for each in orders])
        assert topic.move() == 40
        assert topic.view().shape.codec == "avro-schema-id-1"
        rows = topic.rows()
        assert [{name: rows[n][name] for name in ("id", "item", "amount")} for n in range(40)] == orders
        assert {(row["_kind"], row["_value"]) for row in rows.values()} == {(KIND_TYPED, None)}
        topic.check_fetched()


NOTE = {"type": "record", "name": "Note", "fields": [{"name": "text", "type": "string"}]}
WIDER: dict[str, Any] = ORDER | {
    "fields": [
        {"name": "note", "type": ["null", NOTE], "default": None},
        {"name": "item", "type": "string"},
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", "double"], "default": None},
    ]
}
"""Fields in another order, one more, one wider."""


def test_a_schema_may_change_in_the_middle_of_a_batch(node: Node) -> None:
    with typed_topic(node, "changing") as topic:
        write, write_wider = topic.avro(ORDER), topic.avro(WIDER)
        topic.produce([write(order(number)) for number in range(5)])
        topic.move()
        more = {"id": 1 << 40, "note": {"text": "n"}}
        topic.produce(
            [write(order(number)) if number % 2 else write_wider(order(number) | more) for number in range(5, 15)]
        )
        assert topic.move() == 10
        assert [column.name for column in topic.view().shape.value_columns] == ["id", "item", "amount", "note"]
        assert topic.column("id") == [n if n % 2 or n < 5 else 1 << 40 for n in range(15)]
        assert topic.column("note") == [None if n % 2 or n < 5 else {"text": "n"} for n in range(15)]
        assert topic.column("_kind") == [KIND_TYPED] * 15
        topic.check_fetched()


def test_ids_that_nobody_knows_keep_their_bytes_and_hold_nothing_up(node: Node) -> None:
    with typed_topic(node, "strangers") as topic:
        write = topic.avro(ORDER)
        odd = [b"\0" + (1_000_000 + n).to_bytes(4, "big") + b"x" for n in range(100)]
        values = [each for n in range(100) for each in (write(order(n)), odd[n], write(order(n))[1:], None, b"")]
        topic.produce(values)
        assert topic.move() == 500
        kinds = topic.column("_kind")
        assert kinds[::5] == [KIND_TYPED] * 100
        assert kinds[1::5] == kinds[2::5] == kinds[4::5] == [KIND_RAW] * 100
        assert len(topic.view().shape.schemas) == 1
        topic.check_fetched()


def test_values_of_the_latest_schema_have_no_framing(node: Node) -> None:
    with typed_topic(node, "plain", value_format="latest") as topic:
        topic.produce([written(ORDER, order(0))])
        topic.move()
        assert topic.view().shape == RAW, "there is no schema yet"
        topic.avro(ORDER)(order(0))
        topic.produce([written(ORDER, order(number)) for number in range(1, 9)])
        topic.move()
        topic.avro(WIDER)(order(0) | {"note": None})
        topic.produce([written(WIDER, order(number) | {"note": {"text": "n"}}) for number in range(9, 12)])
        topic.move()
        assert topic.view().shape.codec == "avro-plain-1"
        assert topic.column("id") == [None, *range(1, 12)]
        assert topic.column("_kind") == [KIND_RAW] + [KIND_TYPED] * 11
        assert len(set(topic.column("_schema_id"))) == 3
        topic.check_fetched()


@pytest.mark.parametrize(("wanted", "codec"), [("string", "text-1"), ("json", "json-text-1")])
def test_text_is_one_column(node: Node, wanted: str, codec: str) -> None:
    with typed_topic(node, f"as_{wanted}", value_format=wanted) as topic:
        topic.produce([b'{"a":  1}', b"\xff", None, '"é"'.encode()])
        topic.move()
        assert topic.view().shape.codec == codec
        assert topic.column("value") == ['{"a":  1}', None, None, '"é"']
        assert topic.column("_kind") == [KIND_TYPED, KIND_RAW, KIND_TOMBSTONE, KIND_TYPED]
        topic.check_fetched()


def test_a_living_topic_becomes_typed_and_raw_again(node: Node) -> None:
    with typed_topic(node, "turning", value_format="raw") as topic:
        write = topic.avro(ORDER)
        topic.produce([write(order(0))])
        topic.move()
        for wanted, number in (("schema_id", 1), ("raw", 2), ("schema_id", 3)):
            topic.alter("value.format", wanted)
            topic.produce([write(order(number))])
            assert topic.move() == 1
        assert topic.column("_kind") == [KIND_RAW, KIND_TYPED, KIND_RAW, KIND_TYPED]
        assert topic.column("id") == [None, 1, None, 3]
        for name, value in (("value.format", "latest"), ("value.subject", ":.other:turning-value")):
            with pytest.raises(KafkaException, match="cannot be"):
                topic.alter(name, value)
        with pytest.raises(KafkaException, match="cannot be"):
            topic.alter("value.format", "avro")
        topic.merge()
        assert len(topic.view().files) == 1
        assert topic.column("id") == [None, 1, None, 3]
        topic.check_fetched()


def test_a_schema_that_cannot_be_columns_holds_nothing_up(node: Node) -> None:
    with typed_topic(node, "stubborn") as topic, typed_topic(node, "foreign") as foreign:
        write = topic.avro(ORDER)
        topic.produce([write(order(0))])
        topic.move()
        # Another subject's schema, in which a field of the same name is text.
        other = foreign.avro({"type": "record", "name": "Other", "fields": [{"name": "id", "type": "string"}]})
        topic.produce([other({"id": "x"}), write(order(1))])
        assert topic.move() == 2
        assert topic.column("_kind") == [KIND_TYPED, KIND_RAW, KIND_TYPED]
        [_, refused] = topic.view().shape.schemas
        assert "id is int in the table and string in the schema" in refused.trouble
        topic.check_fetched()


def test_columns_of_the_owner_keep_their_names(node: Node) -> None:
    with typed_topic(node, "owned") as topic:
        topic.produce([b"x"])
        topic.move()
        with closing(RestCatalog("lake", uri=node.uri)) as catalog:
            with catalog.load_table("default.owned").update_schema() as change:
                change.add_column("Item", StringType(), doc="mine")
        topic.produce([topic.avro(ORDER)(order(1))])
        topic.move()
        assert topic.column("item_2") == [None, "item 1"]
        assert topic.column("Item") == [None, None]
        topic.check_fetched()


def test_an_alias_that_somebody_registers_is_a_column_of_its_own(node: Node) -> None:
    """Readers go by it; a rename of the column is ALTER TABLE's."""
    with typed_topic(node, "aliased") as topic:
        first = topic.avro(ORDER)
        fields = [
            {"name": "thing", "type": "string", "aliases": ["item"]} if f["name"] == "item" else f
            for f in ORDER["fields"]
        ]
        second = topic.avro(ORDER | {"fields": fields})
        topic.produce([first(order(0)), second({"id": 1, "thing": "tea", "amount": None}), first(order(2))])
        assert topic.move() == 3
        assert topic.column("item") == ["item 0", None, "item 2"]
        assert topic.column("thing") == [None, "tea", None]
        assert topic.column("_kind") == [KIND_TYPED] * 3
        topic.check_fetched()
        read = AvroDeserializer(topic.registry, json.dumps(ORDER | {"fields": fields}))
        values = [read(topic.sent[n], SerializationContext(topic.name, MessageField.VALUE)) for n in range(3)]
        assert [value["thing"] for value in values] == ["item 0", "tea", "item 2"]
