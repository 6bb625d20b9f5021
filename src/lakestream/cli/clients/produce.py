"""`lakestream produce`: records from the command line or from standard input."""

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException, Producer

from lakestream.cli.console import emit_json, err, fail
from lakestream.cli.options import DEFAULT_BOOTSTRAP, REQUEST_TIMEOUT_S, Bootstrap, Json

app = typer.Typer(help="Write records to a topic.")

Record = tuple[bytes | None, bytes | None]


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(help="The topic. It is created if it is not there.")],
    value: Annotated[
        list[str] | None, typer.Argument(help="Values to write. None: one record per line of standard input.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Each line is key, separator, value.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="name=value. May be repeated.")] = None,
    partition: Annotated[int, typer.Option("--partition", "-p", help="Write to this partition only.")] = -1,
    compression: Annotated[str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Write records and wait until every one is safe in the log.

    Examples:

      lakestream produce orders '{"item":"tea"}'

      cat events.jsonl | lakestream produce events
    """
    client: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "compression.type": compression,
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.timeout.ms": int(REQUEST_TIMEOUT_S * 3000),
        "log_level": 0,
    }
    producer = Producer(client)
    headers: list[tuple[str, str | bytes | None]] = [
        (name, text.encode()) for name, _, text in (item.partition("=") for item in header or [])
    ]
    acked: dict[int, int] = {}
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error.str())
        else:
            acked[message.partition()] = acked.get(message.partition(), 0) + 1

    default_key = None if key is None else key.encode()
    for record_key, record_value in _records(value, default_key, key_separator):
        while True:
            try:
                producer.produce(topic, record_value, record_key, partition, delivered, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                fail(f"the record was refused: {error.args[0].str()}")
        producer.poll(0)
    left = producer.flush(REQUEST_TIMEOUT_S * 3)
    if failures or left:
        reason = failures[0] if failures else f"no broker answers at {bootstrap}"
        fail(f"{len(failures) + left} of {sum(acked.values()) + len(failures) + left} records were not taken: {reason}")
    if json:
        emit_json({"topic": topic, "acked": sum(acked.values()), "partitions": dict(sorted(acked.items()))})
    else:
        count = sum(acked.values())
        err.print(f"{count} record{'' if count == 1 else 's'} acked.")


def _records(values: list[str] | None, key: bytes | None, separator: str | None) -> Iterator[Record]:
    lines = (value.encode() for value in values) if values else (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
    for line in lines:
        if separator is None:
            yield key, line
        else:
            before, found, after = line.partition(separator.encode())
            yield (before, after) if found else (key, line)
