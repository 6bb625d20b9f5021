"""Processes of a deployment whose tables are in an external catalog, as an operator sets it up: by the environment."""

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from support.servers.catalogs import NAME, Place, sql_place, variables
from support.worlds.processes import ProcessWorld, Running, free_ports

WAIT_S = 30
ASKED = (("GET", "v1/config"), ("GET", "v1/namespaces/default/tables/orders"), ("POST", "v1/namespaces"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return sql_place(tmp_path)


@pytest.fixture
def environment(place: Place) -> dict[str, str]:
    named = {"LAKESTREAM_EXTERNAL_CATALOG": NAME, "LAKESTREAM_BUCKET_URL": place.bucket_url}
    return named | variables(place.properties)


def produce(cluster: ProcessWorld, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(WAIT_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(count):
        producer.produce("orders", b"v%d" % number)
    assert producer.flush(WAIT_S) == 0


def test_the_door_shows_no_second_truth(
    cluster: Callable[..., ProcessWorld], environment: dict[str, str], tmp_path: Path
) -> None:
    made = cluster(1, http=True, environment=environment)
    produce(made, 3)
    door = f"http://127.0.0.1:{made.http_port}"
    for method, path in ASKED:
        answer = httpx.request(method, f"{door}/iceberg/{path}")
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (406, "UnsupportedOperationException")
        assert f"in the external catalog {NAME} (sql, sqlite:///{tmp_path}/catalog.db)" in error["message"]
    assert httpx.get(f"{door}/health").json() == {"status": "ok"}
    [lag] = httpx.get(f"{door}/lag").json()
    assert lag["topic"] == "orders"


def test_what_an_external_catalog_cannot_do_is_refused_when_it_is_asked_for(
    cluster: Callable[..., ProcessWorld], environment: dict[str, str]
) -> None:
    made = cluster(1, environment=environment)
    produce(made, 1)
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    for name, value in (
        ("lakestream.table.upsert", "_key"),
        ("lakestream.value.transform", "debezium"),
        ("lakestream.table.inserts", "true"),
        ("automq.table.topic.id.columns", "[id]"),
    ):
        ours = name if name.startswith("lakestream") else "lakestream.table.upsert"
        with pytest.raises(KafkaException, match=f"{re.escape(ours)} cannot be with an external catalog"):
            admin.create_topics([NewTopic("other", 1, config={name: value})])["other"].result(WAIT_S)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
        with pytest.raises(KafkaException, match=f"{re.escape(ours)} cannot be with an external catalog"):
            admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    resource.add_incremental_config(ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    assert "other" not in admin.list_topics(timeout=WAIT_S).topics


def test_a_catalog_that_nobody_set_up_is_one_sentence(start: Callable[..., Running], tmp_path: Path) -> None:
    arguments = ("http", "--port", str(free_ports()), "--data", str(tmp_path / "data"))
    running = start(*arguments, environment={"LAKESTREAM_EXTERNAL_CATALOG": "nowhere"})
    assert running.process.wait(WAIT_S) != 0
    assert "PyIceberg's settings have no catalog 'nowhere'" in running.output
    assert "Traceback" not in running.output


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("java")
def test_the_spark_pipeline_fills_it(
    cluster: Callable[..., ProcessWorld], environment: dict[str, str], place: Place
) -> None:
    made = cluster(1, environment=environment)
    produce(made, 100)
    made.run_pipeline_once()
    catalog = place.outsider()
    try:
        found = catalog.load_table(("default", "orders")).scan(selected_fields=("_offset", "_value")).to_arrow()
    finally:
        catalog.close()
    assert sorted(found["_offset"].to_pylist()) == list(range(100))
    assert set(found["_value"].to_pylist()) == {b"v%d" % number for number in range(100)}
