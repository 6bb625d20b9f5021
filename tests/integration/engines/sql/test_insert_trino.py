"""Trino inserts into a stream through a real door; a Kafka client reads its rows."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from conftest import need
from support.servers.trino import trino, trino_archive
from support.worlds.doors import http_door
from support.worlds.embedded import embedded

pytestmark = pytest.mark.slow

WAIT_S = 30


def test_trino_inserts_records(tmp_path: Path) -> None:
    archive = need(trino_archive(), "Trino (LAKESTREAM_TRINO_JARS)")
    data = tmp_path / "data"
    with embedded(data) as broker, http_door(data) as door:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic("orders", 1, 1, config={"lakestream.table.inserts": "true"})
        admin.create_topics([topic])["orders"].result(WAIT_S)
        with trino(archive, tmp_path / "trino", f"{door}/iceberg") as engine:
            engine.run("INSERT INTO orders (_key, _value) VALUES (to_utf8('a'), to_utf8('1')), (to_utf8('b'), NULL)")
            engine.run(
                "INSERT INTO orders (_value) SELECT to_utf8(CAST(n AS varchar)) FROM UNNEST(sequence(1, 20)) AS t(n)"
            )
            assert engine.run("SELECT count(*), max(_offset) FROM orders") == [[22, 21]]
            with pytest.raises(RuntimeError, match=r"_offset in|would be appended"):
                engine.run("INSERT INTO orders SELECT * FROM orders WHERE _offset = 1")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        found = [consumer.poll(WAIT_S) for _ in range(22)]
        consumer.close()
        values = [message.value() for message in found if message is not None]
        assert values[:2] == [b"1", None]
        assert sorted(values[2:]) == sorted(b"%d" % number for number in range(1, 21))  # type: ignore[type-var]
