"""A stream whose table is in a catalog on PostgreSQL, or in a Hive Metastore: produced, moved, read, rewritten, dropped
and brought back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from support.external import external_place
from support.external_town import TABLE, WAIT_S, Town, external_town

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")
HALF = 6


@pytest.fixture(params=["postgres", pytest.param("hive", marks=pytest.mark.slow)])
def town(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    with external_place(request.param, request, tmp_path) as place:
        with external_town(place, tmp_path, monkeypatch) as made:
            yield made


def test_a_stream_lives_there(town: Town) -> None:
    for _ in range(2):
        town.produce(HALF)
        assert town.tick().record_count == HALF
    assert town.rows() == list(range(2 * HALF))
    town.check_all()

    # An engine deletes a row, which rewrites its file.
    town.table().delete("_offset = 3")
    town.produce(HALF)
    assert town.tick().record_count == HALF
    assert town.rows() == [0, 1, 2, *range(4, 3 * HALF)]
    town.check_all(without=(3,))

    # Somebody drops the table, and brings it back.
    location = town.table().metadata_location
    town.outsider.drop_table(TABLE)
    town.produce(HALF)
    town.check_commits_stopped("has no table default.orders any more", location)
    town.restart_broker()
    town.check_all(without=(3,))
    town.outsider.register_table(TABLE, location)
    assert town.tick().record_count == HALF
    assert town.rows() == [0, 1, 2, *range(4, 4 * HALF)]
    town.check_all(without=(3,))


def test_a_topic_cannot_have_the_name_of_a_table_that_is_there(town: Town) -> None:
    town.outsider.create_table(("default", "facts"), Schema(NestedField(1, "mine", LongType())))
    admin = AdminClient({"bootstrap.servers": town.brokers.bootstrap})

    def create(topic: str, table: str) -> None:
        configs = {"lakestream.table.name": table}
        admin.create_topics([NewTopic(topic, 1, config=configs)])[topic].result(WAIT_S)

    with pytest.raises(KafkaException, match=r"default\.facts cannot be: catalog outside .* has a table of that name"):
        create("sales", "facts")
    assert "sales" not in admin.list_topics(timeout=WAIT_S).topics
    create("sales", "sold")
    assert "sales" in admin.list_topics(timeout=WAIT_S).topics
    assert town.tick().failures == ()
    assert town.outsider.load_table(("default", "sold")).properties["lakestream.topic"] == "sales"
    assert town.outsider.load_table(("default", "facts")).schema().column_names == ["mine"]
