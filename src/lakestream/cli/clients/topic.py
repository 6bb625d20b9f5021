"""`lakestream topic`: create, list, describe, delete."""

from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from lakestream.cli.clients.admin import connect, known_topic, open_admin, reason, topics
from lakestream.cli.clients.registry import Registry, RegistryError, read_schema
from lakestream.cli.console import emit_json, fail, out, show_table
from lakestream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_REGISTRY,
    REQUEST_TIMEOUT_S,
    Bootstrap,
    Json,
    RegistryUrl,
)
from lakestream.metadata.topics.option_list import VALUE_FORMAT, VALUE_SUBJECT
from lakestream.metadata.topics.tables import value_subject

app = typer.Typer(no_args_is_help=True, help="Create, list, describe and delete topics. Every topic is also a table.")

Name = Annotated[str, typer.Argument(help="The topic's name.", metavar="TOPIC")]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="How many partitions it is split into.")
    ] = 1,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", help="A setting, name=value. May be repeated.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", "-s", metavar="FILE", help="Of its values, .avsc, .proto or .json: they are columns."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    json: Json = False,
) -> None:
    """Create a topic, and with it the table default.TOPIC. With a schema, the fields of its values are columns of that.

    Example: lakestream topic create orders --schema orders.avsc
    """
    configs = {}
    for item in config or []:
        key, equals, value = item.partition("=")
        if not equals:
            fail(f"a setting is written name=value, not {item!r}")
        configs[key] = value
    schema_id = None
    if schema is not None:
        configs.setdefault(VALUE_FORMAT, "schema_id")
        try:
            subject = value_subject(name, configs.get(VALUE_SUBJECT, ""))
            schema_id = Registry(registry).register(subject, read_schema(schema))
        except RegistryError as error:
            fail(f"topic {name!r} was not created: {error}")
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=configs)
    admin = open_admin(bootstrap)
    try:
        admin.create_topics([topic], operation_timeout=REQUEST_TIMEOUT_S)[name].result(REQUEST_TIMEOUT_S * 2)
    except (KafkaException, TimeoutError) as error:
        fail(f"topic {name!r} was not created: {reason(error)}")
    if json:
        emit_json({"topic": name, "partitions": partitions, **({} if schema_id is None else {"schema_id": schema_id})})
    else:
        out.print(f"Created topic [bold]{name}[/], {partitions} partition{'s' if partitions > 1 else ''}.")


@app.command("list")
def list_(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List the topics."""
    found = sorted(topics(connect(bootstrap), bootstrap).values(), key=lambda topic: str(topic.topic))
    if json:
        emit_json([{"topic": topic.topic, "partitions": len(topic.partitions)} for topic in found])
    elif found:
        show_table(["topic", "partitions"], [[topic.topic, len(topic.partitions)] for topic in found])
    else:
        out.print("There are no topics yet. Try: lakestream topic create orders")


@app.command()
def describe(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show a topic's partitions and how far each has come."""
    admin = connect(bootstrap)
    indices = sorted(known_topic(admin, bootstrap, name).partitions)
    bounds = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        asked = {TopicPartition(name, index): spec for index in indices}
        try:
            futures = admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
            bounds.append({part.partition: future.result().offset for part, future in futures.items()})
        except KafkaException as error:
            fail(f"the offsets of {name!r} could not be read: {reason(error)}")
    start, end = bounds
    rows = [(index, start[index], end[index], end[index] - start[index]) for index in indices]
    if json:
        keys = ("partition", "start_offset", "end_offset", "records")
        emit_json({"topic": name, "partitions": [dict(zip(keys, row, strict=True)) for row in rows]})
    else:
        show_table(["partition", "start offset", "end offset", "records"], rows, title=name)


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete a topic. Its table is kept, under a name that carries the topic's id."""
    admin = connect(bootstrap)
    known_topic(admin, bootstrap, name)
    if not yes and not json:
        typer.confirm(f"Delete topic {name}?", abort=True)
    try:
        admin.delete_topics([name], operation_timeout=REQUEST_TIMEOUT_S)[name].result(REQUEST_TIMEOUT_S * 2)
    except (KafkaException, TimeoutError) as error:
        fail(f"topic {name!r} was not deleted: {reason(error)}")
    if json:
        emit_json({"topic": name, "deleted": True})
    else:
        out.print(f"Deleted topic [bold]{name}[/].")
