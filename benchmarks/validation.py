"""What validation costs a broker: the same Avro orders of about 200 B produced to topics without, with `id` and with
`full`, in turns. Figures are the broker's CPU, beside that of the topic without in the same run.

librdkafka, six partitions, acks=all, batches of its usual size, uncompressed and in zstd.
"""

import asyncio
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import fastavro
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.result import QUICK, Result, at_most_of
from benchmarks.servers import Server, lakestream
from lakestream import objects
from lakestream.access import ALLOW_ALL, ANONYMOUS
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.runtime import system
from lakestream.schemas.registry.model import Schema, SchemaType, Subject
from lakestream.schemas.registry.registry import SchemaRegistry

RECORDS = 100_000 if QUICK else 1_000_000
ROUNDS = 2 if QUICK else 5
PARTITIONS = 6
VALIDATIONS = ("none", "id", "full")
CODECS = ("none", "zstd")
MOST = {"id": 1.2, "full": 4.0}
_LONG = {"type": "long", "logicalType": "timestamp-millis"}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": name, "type": kind}
        for name, kind in (
            *(("id", "long"), ("customer", "string"), ("item", "string"), ("quantity", "int"), ("price", "double")),
            *(("currency", "string"), ("note", ["null", "string"]), ("paid", "boolean"), ("at", _LONG)),
            ("address", "string"),
        )
    ],
}


def _values(count: int) -> list[bytes]:
    dice = random.Random(5)
    schema = fastavro.parse_schema(ORDER)
    found = []
    for number in range(count):
        sink = io.BytesIO()
        order = {
            "id": dice.getrandbits(62),
            "customer": f"customer-{dice.randrange(10**6):06}",
            "item": f"item {dice.randrange(1000)} of a shop that has everything",
            "quantity": dice.randint(1, 9),
            "price": dice.random() * 100,
            "currency": dice.choice(("EUR", "USD")),
            "note": dice.choice((None, "please ring twice, the bell is hard to hear")),
            "paid": dice.random() < 0.5,
            "at": 1_760_000_000_000 + number,
            "address": f"{dice.randrange(300)} Long Street, {dice.randrange(10**5):05} Somewhere upon the River",
        }
        fastavro.schemaless_writer(sink, schema, order)
        found.append(b"\0\0\0\0\1" + sink.getvalue())
    return found


async def _register(directory: Path, topics: Sequence[str]) -> None:
    store = await open_sqlite(str(directory / "metadata.db"))
    try:
        registry = SchemaRegistry(store, objects.open(f"file://{directory / 'bucket'}"), system(), ALLOW_ALL)
        for topic in topics:
            schema = Schema(SchemaType.AVRO, json.dumps(ORDER))
            found = await registry.register(ANONYMOUS, Subject(".", f"{topic}-value"), schema)
            assert found.id == 1
    finally:
        await store.close()


def _round(server: Server, topic: str, values: Sequence[bytes], codec: str) -> float:
    """The server's CPU seconds."""
    config = {"bootstrap.servers": server.bootstrap, "linger.ms": 20, "compression.type": codec, "acks": "all"}
    producer = Producer(config | {"queue.buffering.max.messages": 1_000_000})
    failed: list[Any] = []
    before = server.cpu_seconds()
    for number in range(RECORDS):
        producer.produce(
            topic,
            values[number % len(values)],
            partition=number // 1000 % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed, failed[0]
    return server.cpu_seconds() - before


def run() -> list[Result]:
    values = _values(20_000)
    topics = [f"orders-{validation}" for validation in VALIDATIONS]
    spent: dict[tuple[str, str], list[float]] = {}
    with lakestream() as server:
        asyncio.run(_register(server.directory, topics))
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        for validation, topic in zip(VALIDATIONS, topics, strict=True):
            config = {"lakestream.schema.validation": validation}
            admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(60)
        for number in range(ROUNDS + 1):
            for codec in CODECS:
                for validation, topic in zip(VALIDATIONS, topics, strict=True):
                    figure = _round(server, topic, values, codec)
                    if number:
                        spent.setdefault((codec, validation), []).append(figure)
    results = []
    for codec in CODECS:
        peer = median(spent[codec, "none"]) / RECORDS * 1e6
        for validation, most in MOST.items():
            ours = median(spent[codec, validation]) / RECORDS * 1e6
            label = f"validation {validation}, {'plain' if codec == 'none' else codec} batches"
            results.append(at_most_of(label, ours, peer, "CPU µs/record", at_most=most))
    return results
