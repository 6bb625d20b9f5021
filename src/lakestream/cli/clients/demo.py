"""`lakestream demo`: a steady stream of realistic orders."""

import json as jsonlib
import random
import time
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from confluent_kafka import Producer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from lakestream.cli.console import emit_json, err, fail
from lakestream.cli.options import DEFAULT_BOOTSTRAP, REQUEST_TIMEOUT_S, Bootstrap, Json

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


@app.command()
def demo(
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where to write.")] = "orders",
    rate: Annotated[float, typer.Option("--rate", "-r", min=0.1, help="Orders per second.")] = 100.0,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after this many.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed gives the same orders.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Write orders until Ctrl-C, or until --count is reached. The key is the customer, the value is JSON.

    Example: lakestream demo --rate 500, and elsewhere: lakestream table query 'SELECT count(*) FROM orders'
    """
    source = random.Random(seed)
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
                    _send(producer, topic, value, delivered)
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


def _send(producer: Producer, topic: str, value: dict[str, Any], delivered: Any) -> None:
    while True:
        try:
            producer.produce(topic, jsonlib.dumps(value), value["customer"], on_delivery=delivered)
            return
        except BufferError:
            producer.poll(0.05)
