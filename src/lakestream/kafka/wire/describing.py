"""Topics as metadata answers have them, encoded once for each version, zone and set of brokers.

A partition has one broker in each zone, which all clients of the zone use: those are its replicas, and the one of the
client's own zone is its leader. A client of no known zone uses one of them, the same for all such clients.
A client with thousands of topics asks about all of them many times while it gets to know them.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from lakestream.kafka.wire import codec
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.brokers import Broker, rendezvous
from lakestream.metadata.topics.list import Topic
from lakestream.stream import TopicKey

LEADER_EPOCH: Final = 0
"""Brokers own nothing, so no leader ever changes: the epoch is 0 for the life of a topic's UUID."""
_METADATA: Final = 3
UNASKED: Final = -(1 << 31)
"""What a caller may do with a thing, where the request does not ask."""
_MOST_PARTITIONS: Final = 200_000
"""All are forgotten beyond this: about 10 MB."""


class Descriptions:
    def __init__(self) -> None:
        self._brokers: Sequence[Broker] = ()
        self._zones: dict[str | None, list[Broker]] = {}
        self._encoded: dict[tuple[UUID, int, str | None, int], tuple[Topic, bytes]] = {}
        self._partitions = 0

    def of(
        self,
        topic: Topic,
        brokers: Sequence[Broker],
        zone: str | None,
        version: int,
        operations: int = UNASKED,
    ) -> bytes:
        """The topic's part of a metadata answer to a client of this zone that may do these things with it."""
        if brokers != self._brokers or self._partitions > _MOST_PARTITIONS:
            self._brokers, self._partitions = brokers, 0
            self._encoded.clear()
            self._zones = _by_zone(brokers)
        zone = zone if zone in self._zones else None
        held = self._encoded.get((topic.topic_id, version, zone, operations))
        if held is not None and (held[0] is topic or held[0] == topic):
            return held[1]
        fields = {**_fields(topic, self._zones, zone), "topic_authorized_operations": operations}
        encoded = codec.write_part(_METADATA, version, "topics", fields)
        self._encoded[topic.topic_id, version, zone, operations] = topic, encoded
        self._partitions += topic.partitions
        return encoded

    def partitions(self, topic: Topic, brokers: Sequence[Broker], zone: str | None) -> list[Fields]:
        """The same, not encoded, of its partitions."""
        zones = _by_zone(brokers)
        return [_partition(topic, index, zones, zone if zone in zones else None) for index in range(topic.partitions)]

    def leader(self, topic: Topic, index: int, brokers: Sequence[Broker]) -> int:
        """The broker that clients of no known zone use."""
        leader: int = _partition(topic, index, _by_zone(brokers), None)["leader_id"]
        return leader


def _by_zone(brokers: Sequence[Broker]) -> dict[str | None, list[Broker]]:
    zones: dict[str | None, list[Broker]] = {}
    for broker in brokers:
        zones.setdefault(broker.zone, []).append(broker)
    return zones


def partition_key(topic: TopicKey, index: int) -> str:
    """What everybody chooses a partition's broker by."""
    return f"{topic.hex if isinstance(topic, UUID) else topic}/{index}"


def _fields(topic: Topic, zones: Mapping[str | None, Sequence[Broker]], zone: str | None) -> Fields:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [_partition(topic, index, zones, zone) for index in range(topic.partitions)],
    }


def _partition(topic: Topic, index: int, zones: Mapping[str | None, Sequence[Broker]], zone: str | None) -> Fields:
    key = partition_key(topic.topic_id, index)
    chosen = [rendezvous(key, brokers) for brokers in zones.values()]
    leader = rendezvous(key, [each for each in chosen if zone is not None and each.zone == zone] or chosen).broker_id
    others = sorted(each.broker_id for each in chosen if each.broker_id != leader)
    return {
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": LEADER_EPOCH,
        "replica_nodes": (leader, *others),
        "isr_nodes": (leader, *others),
    }
