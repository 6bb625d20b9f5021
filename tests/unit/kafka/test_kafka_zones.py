"""Clients that say where they are get brokers of their zone; all others get any."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams

from lakestream.kafka.zones import zone_of
from lakestream.metadata.brokers import Broker

METADATA = {
    "topics": [{"name": "t", "topic_id": None}],
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}


@pytest.mark.parametrize(
    ("client_id", "zone"),
    [
        ("app", None),
        ("", None),
        ("zone_id=", None),
        ("my_zone_id=a", None),
        ("lakestream_zone=a", "a"),
        ("app,zone_id=eu-1a", "eu-1a"),
        ("app zone_id=eu-1a,x=y", "eu-1a"),
        ("diskless_az=use1-az1,app", "use1-az1"),
        ("app;inkless_az=b", "b"),
        ("application-foo,ws_az=us-east-1a", "us-east-1a"),
        ("warpstream_az=us-east-1a", "us-east-1a"),
        ("automq_type=producer&automq_az=cn-1b&x=1", "cn-1b"),
        ("zone_id=ä", "ä"),
    ],
)
def test_the_zone_in_a_client_id(client_id: str, zone: str | None) -> None:
    assert zone_of(client_id) == zone


async def _three_zones(streams: FakeStreams) -> None:
    for number, zone in ((2, "a"), (3, "a"), (4, "b"), (5, "b")):
        await streams.brokers.register(Broker(number, "other", 9000 + number, zone, f"session-{number}"))
    await streams.topics.create("t", 40, {})


async def _partitions(client: Client, client_id: str) -> list[Any]:
    client.client_id = client_id
    answer = await client.ask(3, 13, METADATA)
    assert {broker.node_id: broker.rack for broker in answer.brokers} == {1: None, 2: "a", 3: "a", 4: "b", 5: "b"}
    return list(answer.topics[0].partitions)


def test_leaders_are_brokers_of_the_clients_zone() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await _three_zones(streams)
        leaders = {}
        for client_id in ("app", "app,zone_id=a", "ws_az=b", "diskless_az=nowhere"):
            partitions = await _partitions(client, client_id)
            leaders[client_id] = [partition.leader_id for partition in partitions]
            for partition in partitions:
                assert partition.replica_nodes[0] == partition.leader_id
                assert partition.isr_nodes == partition.replica_nodes
                assert sorted(1 if node == 1 else node // 2 + 1 for node in partition.replica_nodes) == [1, 2, 3]
        assert set(leaders["app,zone_id=a"]) == {2, 3}
        assert set(leaders["ws_az=b"]) == {4, 5}
        assert set(leaders["app"]) == {1, 2, 3, 4, 5}
        assert leaders["diskless_az=nowhere"] == leaders["app"]

    with_door(test)


def test_a_zone_without_a_live_broker_uses_the_others() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await _three_zones(streams)
        for number in (4, 5):
            await streams.brokers.leave(Broker(number, "other", 9000 + number, "b", f"session-{number}"))
        client.client_id = "ws_az=b"
        answer = await client.ask(3, 13, METADATA)
        assert {partition.leader_id for partition in answer.topics[0].partitions} == {1, 2, 3}

    with_door(test)


def test_all_clients_are_told_the_same_coordinator() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await _three_zones(streams)
        found = []
        for client_id in ("app", "zone_id=a", "zone_id=b"):
            client.client_id = client_id
            answer = await client.ask(10, 6, {"key_type": 0, "coordinator_keys": [f"g{n}" for n in range(20)]})
            found.append([each.node_id for each in answer.coordinators])
        assert found[0] == found[1] == found[2]
        assert len(set(found[0])) > 2

    with_door(test)


def test_a_consumer_of_another_zone_is_told_its_preferred_replica() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await _three_zones(streams)
        await streams.brokers.live()
        [topic] = (await client.ask(3, 13, METADATA)).topics
        produced = {"index": 3, "records": batch(b"x")}
        topics = [{"topic_id": topic.topic_id, "partition_data": [produced]}]
        await client.ask(0, 13, {"transactional_id": None, "acks": -1, "timeout": span(9_000), "topic_data": topics})

        async def fetch(rack: str) -> Any:
            asked = {"partition": 3, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            fields = {
                "max_wait": span(0),
                "min_bytes": 0,
                "max_bytes": 1 << 20,
                "isolation_level": 0,
                "session_id": 0,
                "session_epoch": -1,
                "topics": [{"topic_id": topic.topic_id, "partitions": [asked]}],
                "forgotten_topics_data": (),
                "rack_id": rack,
            }
            return (await client.ask(1, 16, fields)).responses[0].partitions[0]

        for rack in ("", "nowhere"):
            answer = await fetch(rack)
            assert (answer.error_code, answer.preferred_read_replica) == (ErrorCode.none, -1)
            assert answer.records
        answer = await fetch("b")
        assert answer.error_code is ErrorCode.none
        assert not answer.records
        assert answer.preferred_read_replica in (4, 5)
        assert answer.preferred_read_replica in topic.partitions[3].replica_nodes

    with_door(test)
