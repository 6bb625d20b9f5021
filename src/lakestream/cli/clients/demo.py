"""`lakestream demo`: a steady stream of realistic orders."""

import json as jsonlib
import random
import struct
import time
import uuid
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from lakestream.cli.clients.admin import open_admin, reason, topics
from lakestream.cli.clients.registry import Registry, RegistryError, SchemaText
from lakestream.cli.console import emit_json, err, fail
from lakestream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_REGISTRY,
    REQUEST_TIMEOUT_S,
    Bootstrap,
    Json,
    RegistryUrl,
)
from lakestream.metadata.topics.option_list import VALUE_FORMAT
from lakestream.metadata.topics.tables import value_subject

app = typer.Typer(help="Write a steady stream of realistic orders.")

ITEMS = {
    "espresso": 2.4,
    "flat white": 3.8,
    "green tea": 2.9,
    "croissant": 2.6,
    "cinnamon roll": 3.4,
    "sourdough loaf": 5.5,
    "granola bowl": 6.9,
    "orange juice": 4.2,
}
CITIES = ("Lisbon", "Berlin", "Nairobi", "Osaka", "Toronto", "Lima")
CHANNELS = ("app", "web", "counter")


def order(source: random.Random) -> dict[str, Any]:
    """One order, as a shop would send it. Small ids and popular items come up more often."""
    item = source.choices(tuple(ITEMS), weights=range(len(ITEMS), 0, -1))[0]
    quantity = source.choices((1, 2, 3, 6), weights=(70, 20, 7, 3))[0]
    return {
        "order_id": str(uuid.UUID(int=source.getrandbits(128), version=4)),
        "customer": f"c{int(source.paretovariate(1.2)) % 5000:04d}",
        "item": item,
        "quantity": quantity,
        "amount": round(ITEMS[item] * quantity, 2),
        "city": source.choice(CITIES),
        "channel": source.choices(CHANNELS, weights=(5, 3, 2))[0],
        "ordered_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "lakestream.demo",
    "fields": [
        {"name": "order_id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "customer", "type": "string"},
        {"name": "item", "type": "string"},
        {"name": "quantity", "type": "int"},
        {"name": "amount", "type": "double"},
        {"name": "city", "type": "string"},
        {"name": "channel", "type": {"type": "enum", "name": "Channel", "symbols": list(CHANNELS)}},
        {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def framed(schema_id: int, order: dict[str, Any]) -> bytes:
    """The order as Avro of this schema, behind its id, as Confluent's serializers write it."""
    texts = [_text(order[name]) for name in ("order_id", "customer", "item")]
    ordered_ms = round(datetime.fromisoformat(order["ordered_at"]).timestamp() * 1000)
    return b"".join(
        (
            b"\0" + schema_id.to_bytes(4, "big"),
            *texts,
            _long(order["quantity"]),
            struct.pack("<d", order["amount"]),
            _text(order["city"]),
            _long(CHANNELS.index(order["channel"])),
            _long(ordered_ms),
        )
    )


def _long(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*found, rest))


def _text(text: str) -> bytes:
    data = text.encode()
    return _long(len(data)) + data


class Format(StrEnum):
    AVRO = "avro"
    JSON = "json"


@app.command()
def demo(
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where to write.")] = "orders",
    rate: Annotated[float, typer.Option("--rate", "-r", min=0.1, help="Orders per second.")] = 100.0,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after this many.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed gives the same orders.")] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="avro: by a schema in the registry, columns of the table; json: text.")
    ] = Format.AVRO,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    json: Json = False,
) -> None:
    """Write orders until Ctrl-C, or until --count is reached. The key is the customer, the value an order.

    Its schema is registered, and the topic made with it, so that its fields are columns of the table.

    Example: lakestream demo --rate 500, and elsewhere:
    lakestream table query 'SELECT item, sum(amount) FROM orders GROUP BY item'
    """
    source = random.Random(seed)
    schema_id = typed_topic(topic, bootstrap, registry) if format_ is Format.AVRO else None
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0})
    acked = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal acked
        if error is not None:
            fail(f"an order was not taken: {error.str()}")
        acked += 1

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=json) as progress:
        task = progress.add_task("", total=count)
        started = time.monotonic()
        sent = 0
        try:
            while count is None or sent < count:
                due = int((time.monotonic() - started) * rate) + 1
                for _ in range(min(due, count or due) - sent):
                    value = order(source)
                    body = jsonlib.dumps(value).encode() if schema_id is None else framed(schema_id, value)
                    _send(producer, topic, body, value["customer"], delivered)
                    sent += 1
                producer.poll(min(0.05, 1 / rate))
                progress.update(task, completed=acked, description=f"{acked:,} orders acked to {topic}")
                if sent and not acked and time.monotonic() - started > REQUEST_TIMEOUT_S:
                    fail(f"no broker answers at {bootstrap}")
        except KeyboardInterrupt:
            pass
        producer.flush(REQUEST_TIMEOUT_S)
    if json:
        emit_json({"topic": topic, "acked": acked})
    else:
        err.print(f"{acked:,} orders acked to [bold]{topic}[/].")


def typed_topic(topic: str, bootstrap: str, registry: str) -> int:
    """The id of the orders' schema; the topic is there."""
    admin = open_admin(bootstrap)
    try:
        schema = SchemaText("AVRO", jsonlib.dumps(SCHEMA))
        schema_id = Registry(registry).register(value_subject(topic), schema, wait_s=REQUEST_TIMEOUT_S)
    except RegistryError as error:
        fail(f"{error}; --format json needs none")
    if topic not in topics(admin, bootstrap):
        made = NewTopic(topic, num_partitions=1, replication_factor=1, config={VALUE_FORMAT: "schema_id"})
        try:
            admin.create_topics([made])[topic].result(REQUEST_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            fail(f"topic {topic!r} was not created: {reason(error)}")
    return schema_id


def _send(producer: Producer, topic: str, value: bytes, key: str, delivered: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=delivered)
            return
        except BufferError:
            producer.poll(0.05)
