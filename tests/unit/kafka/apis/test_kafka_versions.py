"""Every version of every API that is advertised: a plain request gets an answer that decodes to its last byte."""

import asyncio
import re
import struct
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from support.clients.apache_kafka import KAFKA_RANGES
from support.clients.plain_requests import TOPIC, plain_request
from support.clients.wire import Client, frame, with_door
from support.fakes.loops import run
from support.fakes.streams import FakeStreams

from lakestream.kafka.apis.registry import APIS

VERSIONS = [(key, version) for key, api in APIS.items() for version in range(api.min_version, api.max_version + 1)]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_version_is_answered(key: int, version: int) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create(TOPIC, 2, {"retention.ms": "5"})
        response = await client.ask(key, version, plain_request(key, version, topic.topic_id))
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


def test_the_table_of_apis_is_what_is_served() -> None:
    """docs/COMPATIBILITY.md: every API of Kafka's with its range and ours."""
    text = (Path(__file__).parents[4] / "docs" / "COMPATIBILITY.md").read_text()
    told = {
        int(key): (theirs.strip(), ours.strip())
        for key, theirs, ours in re.findall(r"^\| (\d+) \| \w+ \|([^|]*)\|([^|]*)\|", text, re.MULTILINE)
    }
    served = {key: (api.announced_from, api.max_version) for key, api in APIS.items()}
    assert told == {key: (_span(versions), _span(served.get(key))) for key, versions in KAFKA_RANGES.items()}


def _span(versions: tuple[int, int] | None) -> str:
    if versions is None:
        return "–"
    low, high = versions
    return str(low) if low == high else f"{low}–{high}"
