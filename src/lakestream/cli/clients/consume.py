"""`lakestream consume`: print a topic's records."""

import base64
import sys
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaException,
    TopicPartition,
)

from lakestream.cli.clients.admin import known_topic
from lakestream.cli.clients.registry import Registry
from lakestream.cli.clients.values import Readable
from lakestream.cli.console import emit_json, fail, say
from lakestream.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_REGISTRY, Bootstrap, Json, RegistryUrl

app = typer.Typer(help="Read records from a topic.")


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(help="The topic to read.")],
    beginning: Annotated[
        bool, typer.Option("--from-beginning", "-B", help="Start with the oldest record, not with the next one.")
    ] = False,
    offset: Annotated[int | None, typer.Option("--offset", "-o", min=0, help="Start at this offset.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")] = None,
    max_records: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at the end instead of waiting for more.")
    ] = False,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", help="Stop after this many seconds without a record.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this group, and remember how far.")
    ] = None,
    as_sent: Annotated[
        bool, typer.Option("--as-sent", help="Values as they are, not as JSON by their schemas in the registry.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    json: Json = False,
) -> None:
    """Print records: values only, or with --json everything, one object per line.

    A value that names its schema is printed as JSON, if the registry knows it.

    Examples:

      lakestream consume orders --from-beginning --until-end

      lakestream consume orders --partition 0 --offset 1000 --max 5 --json
    """
    if group and (partition is not None or offset is not None):
        fail("a group reads all partitions from its committed offsets: leave out --partition and --offset")
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group or f"lakestream-cli-{uuid.uuid4().hex[:8]}",
        "enable.auto.commit": bool(group),
        "auto.offset.reset": "earliest" if beginning else "latest",
        "enable.partition.eof": until_end,
        "allow.auto.create.topics": False,
        "log_level": 0,
    }
    consumer = Consumer(config)
    try:
        indices = _partitions(consumer, topic, bootstrap)
        if partition is not None and partition not in indices:
            fail(f"topic {topic!r} has no partition {partition}; it has 0 to {len(indices) - 1}")
        wanted = indices if partition is None else [partition]
        if group:
            consumer.subscribe([topic])
        else:
            start = offset if offset is not None else OFFSET_BEGINNING if beginning else OFFSET_END
            consumer.assign([TopicPartition(topic, index, start) for index in wanted])
        readable = Readable(Registry(registry)).text if not as_sent else None
        _print_records(consumer, len(wanted), max_records, timeout_s, readable, as_json=json)
    except KafkaException as error:
        fail(f"reading {topic!r} stopped: {error.args[0].str()}")
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str, bootstrap: str) -> list[int]:
    return sorted(known_topic(consumer, bootstrap, topic).partitions)


def _print_records(
    consumer: Consumer,
    partition_count: int,
    max_records: int | None,
    timeout_s: float | None,
    readable: Callable[[bytes | None], bytes | None] | None,
    *,
    as_json: bool,
) -> None:
    ended: set[int | None] = set()
    seen = 0
    last = time.monotonic()
    while max_records is None or seen < max_records:
        message = consumer.poll(0.2)
        if message is None:
            if timeout_s is not None and time.monotonic() - last > timeout_s:
                say(f"{seen} records; nothing more for {timeout_s:g} s.")
                return
            continue
        error = message.error()
        if error is not None:
            if error.name() != "_PARTITION_EOF":
                why = "; the broker's log names the file and what can be done" if error.name() == "INVALID_MSG" else ""
                fail(
                    f"reading {message.topic()!r} stopped at partition {message.partition()}, offset "
                    f"{message.offset()}: {error.str()}{why}"
                )
            ended.add(message.partition())
            if len(ended) == partition_count:
                return
            continue
        last = time.monotonic()
        seen += 1
        value = message.value() if readable is None else readable(message.value())
        if as_json:
            emit_json(_describe(message, value))
        else:
            sys.stdout.buffer.write((value or b"") + b"\n")
            sys.stdout.flush()


def _describe(message: Any, value: bytes | None) -> dict[str, Any]:
    kind, timestamp_ms = message.timestamp()
    timed = kind != TIMESTAMP_NOT_AVAILABLE
    record: dict[str, Any] = {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat() if timed else None,
    }
    record |= _text("key", message.key()) | _text("value", value)
    record["headers"] = [{"name": name} | _text("value", value) for name, value in message.headers() or []]
    return record


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    """As text if it is, else as base64 under a name that says so."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
