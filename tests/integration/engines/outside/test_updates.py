"""An engine that changes what a producer sent: refused by the embedded catalog, or served if wanted."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
import requests
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import Table, Transaction
from pyiceberg.types import StringType
from support.worlds.processes import ProcessWorld

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
"""PyIceberg says so of the size of row groups."""

COUNT = 40
PAUSE = {"LAKESTREAM_STREAM_VIEW_CHECK_MS": "50"}
_names = count()


@pytest.fixture
def town(cluster: Callable[..., ProcessWorld]) -> ProcessWorld:
    """With a topic whose first records are in its table."""
    made = cluster(http=True, environment=PAUSE)
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
    producer = Producer({"bootstrap.servers": made.bootstrap})
    for number in range(COUNT):
        producer.produce("orders", b"v%d" % number, b"k%d" % number, headers=[("h", b"%d" % number)])
    assert producer.flush(30) == 0
    return made


@pytest.fixture
def catalog(town: ProcessWorld) -> Iterator[RestCatalog]:
    opened = RestCatalog("lake", uri=town.catalog)
    yield opened
    opened.close()


def consumed(town: ProcessWorld, end: int = COUNT) -> dict[int, bytes]:
    """Offset to value, until the last has come or an error does."""
    consumer = Consumer({"bootstrap.servers": town.bootstrap, "group.id": "g", "enable.auto.commit": False})
    found: dict[int, bytes] = {}
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        while max(found, default=-1) < end - 1:
            message = consumer.poll(30)
            assert message is not None, found
            if message.error() is not None:
                raise AssertionError(message.error().code())
            found[message.offset()] = message.value()
        return found
    finally:
        consumer.close()


def configure(town: ProcessWorld, value: str) -> None:
    entry = ConfigEntry("lakestream.table.updates", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": town.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def update(table: Table | Transaction, column: str, value: Any, *offsets: int) -> None:
    """As PyIceberg does it: rows are written anew in the place of those that it removes."""
    rows = (table if isinstance(table, Table) else table._table).scan().to_arrow()
    places = rows["_offset"].to_pylist()
    values = [value if place in offsets else old for place, old in zip(places, rows[column].to_pylist(), strict=True)]
    at = rows.schema.get_field_index(column)
    table.overwrite(rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type)))


def sent(*changed: int, **of: bytes) -> dict[int, bytes]:
    return {offset: of["value"] if offset in changed else b"v%d" % offset for offset in range(COUNT)}


def test_pyiceberg_may_change_its_own_columns_and_no_record(town: ProcessWorld, catalog: RestCatalog) -> None:
    table = catalog.load_table("default.orders")
    before = table.metadata_location
    for column, value in (("_value", b"other"), ("_key", None), ("_headers", [])):
        with pytest.raises(ForbiddenError, match=r"partition 0: the record at offset 7 .*DELETE the row and produce"):
            update(catalog.load_table("default.orders"), column, value, 7, 9)
    assert catalog.load_table("default.orders").metadata_location == before
    with table.update_schema() as change:
        change.add_column("note", StringType())
    update(table, "note", "seen", 7)
    update(catalog.load_table("default.orders"), "_schema_id", 3, 9)
    assert catalog.load_table("default.orders").scan("note = 'seen'").to_arrow()["_offset"].to_pylist() == [7]
    catalog.load_table("default.orders").delete("_offset = 8")
    found = sent()
    del found[8]
    assert consumed(town) == found


def test_an_owner_who_wants_it_is_served_what_the_engine_wrote(
    town: ProcessWorld, catalog: RestCatalog, cli: Any
) -> None:
    log = town.brokers[0]
    configure(town, "record")
    update(catalog.load_table("default.orders"), "_value", b"other", 7, 9)
    assert consumed(town) == sent(7, 9, value=b"other")
    assert "serves changed records (lakestream.table.updates=record): partition 0: the record at offset 7" in log.output

    configure(town, "refuse")
    with pytest.raises(AssertionError, match=str(KafkaError.INVALID_MSG)):
        consumed(town)
    assert re.search(r"cannot serve .* at 7: .*offset 7 .*delete the row, or roll the table back, or let", log.output)
    stopped = cli("consume", "orders", "-B", "-e", "--bootstrap", town.bootstrap)
    assert stopped.stdout.splitlines() == [f"v{offset}" for offset in range(7)]
    assert "stopped at partition 0, offset 7" in stopped.stderr
    assert "the broker's log names" in stopped.stderr
    with pytest.raises(ForbiddenError, match="offset 7"):
        catalog.load_table("default.orders").delete("_offset = 3")
    catalog.load_table("default.orders").delete("_offset in (7, 9)")
    found = sent()
    del found[7], found[9]
    assert consumed(town) == found


def test_a_commit_to_several_tables_is_looked_at_too(town: ProcessWorld, catalog: RestCatalog) -> None:
    transaction = catalog.load_table("default.orders").transaction()
    update(transaction, "_value", b"other", 7)
    change = {
        "identifier": {"namespace": ["default"], "name": "orders"},
        "requirements": [json.loads(each.model_dump_json()) for each in transaction._requirements],
        "updates": [json.loads(each.model_dump_json()) for each in transaction._updates],
    }
    answer = requests.post(f"{town.catalog}/v1/transactions/commit", json={"table-changes": [change]}, timeout=30)
    assert answer.status_code == 403
    assert "partition 0: the record at offset 7" in answer.json()["error"]["message"]
    assert consumed(town) == sent()


@pytest.mark.spark
def test_spark_may_change_its_own_columns_and_no_record(town: ProcessWorld, spark: Any) -> None:
    lake = f"updates{next(_names)}"
    for name, value in (("", "org.apache.iceberg.spark.SparkCatalog"), (".type", "rest"), (".uri", town.catalog)):
        spark.conf.set(f"spark.sql.catalog.{lake}{name}", value)
    spark.conf.set(f"spark.sql.catalog.{lake}.cache-enabled", "false")
    table = f"{lake}.default.orders"
    for mode in ("copy-on-write", "merge-on-read"):
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.update.mode'='{mode}')")
        with pytest.raises(Exception, match="partition 0: the record at offset 7 cannot be restored"):
            spark.sql(f"UPDATE {table} SET _value = CAST('other' AS BINARY) WHERE _offset = 7")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN note STRING")
    spark.sql(f"UPDATE {table} SET note = 'seen' WHERE _offset = 7")
    spark.sql(f"DELETE FROM {table} WHERE _offset = 8")
    spark.sql(
        f"CALL {lake}.system.rewrite_data_files(table => 'default.orders', options => map('rewrite-all', 'true'))"
    )
    assert spark.sql(f"SELECT _offset FROM {table} WHERE note = 'seen'").collect()[0][0] == 7
    found = sent()
    del found[8]
    assert consumed(town) == found
