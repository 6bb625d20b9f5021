"""The same requests to us and to a real Apache Kafka 4.3.1: codes and fields are the same, or a row says why not."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.clients.wire import Client
from support.differential.answers import Difference, differences, not_allowed
from support.differential.asking import asks
from support.differential.drawing import Ask
from support.fakes.loops import run
from support.properties import examples
from support.servers.apache_kafka import apache_kafka
from support.worlds.processes import ProcessWorld

pytestmark = [pytest.mark.java, pytest.mark.slow]

_SETTLES_S: Final = 3.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, java: str, kafka_libs: str) -> Iterator[int]:
    """The port of a real Kafka whose coordinators are at work."""
    with apache_kafka(tmp_path_factory.mktemp("kafka") / "data", java, kafka_libs) as (_, port):
        run(_until_coordinated(port), timeout_s=120)
        yield port


async def _until_coordinated(port: int) -> None:
    """Its topics for offsets are made when somebody asks for the first coordinator."""
    async with asyncio.timeout(90):
        while True:
            client = await Client.connect(port)
            await client.ask(10, 4, {"key_type": 0, "coordinator_keys": ("x",)})
            answer = await client.ask(42, 2, {"groups_names": ("x",)})
            await client.close()
            if answer.results[0].error_code.name == "group_id_not_found":
                return
            await asyncio.sleep(0.5)


async def _put(port: int, ask: Ask) -> Any:
    client = await Client.connect(port)
    try:
        async with asyncio.timeout(30):
            return await client.ask(ask.key, ask.version, ask.fields)
    finally:
        await client.close()


async def _compared(ports: tuple[int, int], pair: tuple[Ask, Ask], broker_id: int) -> list[Difference]:
    """What differs when both have come to rest: Kafka's brokers hear of changes a little later."""
    mine, other = pair
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _SETTLES_S
    while True:
        ours, theirs = await asyncio.gather(_put(ports[0], mine), _put(ports[1], other))
        found = not_allowed(mine, differences(ours, theirs, broker_id))
        if not found or not mine.again or loop.time() > deadline_s:
            return found
        await asyncio.sleep(0.2)


def test_codes_and_fields_are_those_of_kafka(kafka: int, cluster: Callable[..., ProcessWorld]) -> None:
    world = cluster(environment={"LAKESTREAM_KAFKA_NUM_PARTITIONS": "1"})
    port = world.ports[0]
    broker_id = run(_put(port, Ask(3, 4, {"topics": (), "allow_auto_topic_creation": False}))).brokers[0].node_id

    differs: dict[tuple[int, str, object, object], tuple[Difference, list[Ask]]] = {}

    # Not shrunk, which would take long with two servers: what differs is told with all that came before.
    @settings(examples(150, phases=[Phase.generate]), suppress_health_check=list(HealthCheck))
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        pairs = data.draw(asks(f"x{next(_numbers)}", broker_id))

        async def work() -> None:
            for done, pair in enumerate(pairs, 1):
                told = await _compared((port, kafka), pair, broker_id)
                for found in told:
                    known = pair[0].key, found.path.rpartition(".")[2], str(found.ours), str(found.theirs)
                    differs.setdefault(known, (found, [ask for _, ask in pairs[:done]]))
                if told:
                    # What follows may differ because this did.
                    return

        run(work(), timeout_s=300)

    compare()
    assert not differs, "\n".join(f"{found}: after {before}" for found, before in differs.values())
