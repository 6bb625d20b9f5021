"""Settings of derived tables, and what others call them."""

import pytest

from lakestream.errors import InvalidSetting
from lakestream.metadata.topics.aliases import resolved
from lakestream.metadata.topics.options import topic_options


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"redpanda.iceberg.invalid.record.action": "drop"}, {"lakestream.errors": "none"}),
        ({"redpanda.iceberg.invalid.record.action": "dlq_table"}, {"lakestream.errors": "dlq"}),
        ({"automq.table.topic.errors.tolerance": "invalid_data"}, {"lakestream.errors": "dlq"}),
        (
            {"automq.table.topic.id.columns": "[region, name]", "automq.table.topic.upsert.enable": "true"},
            {"lakestream.table.upsert": "region, name"},
        ),
        (
            {"automq.table.topic.transform.value.type": "flatten_debezium"},
            {"lakestream.value.transform": "debezium"},
        ),
        ({"automq.table.topic.transform.value.type": "flatten"}, {"lakestream.value.transform": "none"}),
    ],
)
def test_what_others_call_them(given: dict[str, str], meant: dict[str, str]) -> None:
    assert resolved(given, {}) == meant


@pytest.mark.parametrize(
    "given",
    [
        {"automq.table.topic.errors.tolerance": "none"},
        {"automq.table.topic.upsert.enable": "perhaps"},
        {"automq.table.topic.id.columns": "[id]", "automq.table.topic.upsert.enable": "false"},
        {"redpanda.iceberg.invalid.record.action": "fail"},
    ],
)
def test_what_does_not_mean_the_same_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting):
        resolved(given, {})


def test_key_columns_are_names_each_once() -> None:
    assert topic_options({"lakestream.table.upsert": " a , b "}).upsert == ("a", "b")
    assert topic_options({"lakestream.value.transform": "debezium"}).upsert == ("_key",)
    for text in ("a,,b", "a,a"):
        with pytest.raises(InvalidSetting, match="each once"):
            topic_options({"lakestream.table.upsert": text})
    with pytest.raises(InvalidSetting, match="one column"):
        topic_options({"lakestream.table.order.column": "a,b"})
