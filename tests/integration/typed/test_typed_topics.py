"""Topics whose values are columns: real serializers, the registry that is there, every door behind them."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.schemas.typed import ORDER, order, typed_topic
from support.worlds.source import Node, source_node

from lakestream.table.shape import KIND_RAW, KIND_TYPED


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
