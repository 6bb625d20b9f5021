"""Every version of every API that is advertised: a plain request gets an answer that decodes to its last byte."""

import asyncio
import dataclasses
import datetime as dt
import struct
import types
import typing
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from support.apache_kafka import KAFKA_RANGES
from support.batches import batch
from support.door import Client, frame, span, with_door
from support.fake_streams import FakeStreams
from support.loops import run

from lakestream.kafka.apis.registry import APIS

VERSIONS = [(key, version) for key, api in APIS.items() for version in range(api.min_version, api.max_version + 1)]
_TOPIC = "orders"


def _plain(hint: Any, name: str, topic_id: UUID) -> Any:
    """A value for a field, sensible enough to get through: one element in every list."""
    arguments = [argument for argument in typing.get_args(hint) if argument not in (types.NoneType, ...)]
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return _plain(arguments[0], name, topic_id)
    if typing.get_origin(hint) is tuple:
        return [_plain(arguments[0], name, topic_id)]
    if dataclasses.is_dataclass(hint):
        return _fields(typing.cast(type, hint), topic_id)
    if hint is UUID:
        return topic_id
    if issubclass(hint, dt.timedelta):
        return span(100)
    if issubclass(hint, bytes):
        return batch(b"v") if name == "records" else b"m"
    if issubclass(hint, bool):
        return False
    if issubclass(hint, int):
        return {"acks": -1, "key_type": 0, "resource_type": 2, "endpoint_type": 1, "max_bytes": 1000}.get(name, 0)
    return _TOPIC if name in ("name", "topic", "topic_names", "resource_name") else "x"


def _fields(schema: type, topic_id: UUID) -> dict[str, Any]:
    hints = typing.get_type_hints(schema)
    present = [field for field in dataclasses.fields(schema) if field.name not in ("assignments", "transactional_id")]
    values = {
        field.name: _plain(hints[field.name], field.name, topic_id)
        for field in present
        if field.metadata.get("tag") is None
    }
    if any(field.name == "assignments" for field in dataclasses.fields(schema)):
        values["assignments"] = ()
    if any(field.name == "transactional_id" for field in dataclasses.fields(schema)):
        values["transactional_id"] = None
    return values


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_version_is_answered(key: int, version: int) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create(_TOPIC, 2, {"retention.ms": "5"})
        response = await client.ask(key, version, _fields(load_request_schema(key, version), topic.topic_id))
        assert response.__version__ == version

    with_door(test)


def test_the_ranges_are_those_of_apache_kafka() -> None:
    """An older client reads features off them: librdkafka before 2.1 compresses only if Produce begins at 0."""

    async def test(streams: FakeStreams, client: Client) -> None:
        response = await client.ask(18, 4, {"client_software_name": "t", "client_software_version": "1.0"})
        ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        assert ranges == {key: KAFKA_RANGES[key] for key in APIS}

    with_door(test)


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_a_newer_client_is_told_how_to_step_down(version: int) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        known = frame(18, 4, {"client_software_name": "t", "client_software_version": "1"})
        client.writer.write(known[:6] + struct.pack(">h", version) + known[8:])
        client._asked.append((18, 0, 1))
        response = await client.receive()
        assert response.error_code is ErrorCode.unsupported_version
        assert any(each.api_key == 18 and each.max_version == 4 for each in response.api_keys)
        # The same connection goes on.
        assert (await client.ask(18, 0, {})).error_code is ErrorCode.none

    with_door(test)


@pytest.mark.parametrize("software", ["", "bad name", "-x", "x\n"])
def test_a_nameless_client_is_refused(software: str) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        response = await client.ask(18, 3, {"client_software_name": software, "client_software_version": "1"})
        assert response.error_code is ErrorCode.invalid_request

    with_door(test)


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (1, 99), (7, 0), (999, 0), (-1, 0)])
def test_what_is_not_served_closes_the_connection(key: int, version: int) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        client.writer.write(struct.pack(">ihhih", 10, key, version, 1, -1))
        assert await client.is_closed()

    with_door(test)


def test_run_uses_the_brokers_event_loop() -> None:
    async def loop_module() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run(loop_module()).startswith("uvloop")
