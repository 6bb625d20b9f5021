"""Topics as metadata answers have them, encoded once for each version and set of brokers.

A client with thousands of topics asks about all of them many times while it gets to know them.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from lakestream.kafka.wire import codec
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.brokers import Broker, rendezvous
from lakestream.metadata.topics.list import Topic

LEADER_EPOCH: Final = 0
"""Brokers own nothing, so no leader ever changes: the epoch is 0 for the life of a topic's UUID."""
_METADATA: Final = 3
_MOST_PARTITIONS: Final = 200_000
"""All are forgotten beyond this: about 10 MB."""


class Descriptions:
    def __init__(self) -> None:
        self._brokers: Sequence[Broker] = ()
        self._encoded: dict[tuple[UUID, int], tuple[Topic, bytes]] = {}
        self._partitions = 0

    def of(self, topic: Topic, brokers: Sequence[Broker], version: int) -> bytes:
        """The topic's part of a metadata answer."""
        if brokers != self._brokers or self._partitions > _MOST_PARTITIONS:
            self._brokers, self._partitions = brokers, 0
            self._encoded.clear()
        held = self._encoded.get((topic.topic_id, version))
        if held is not None and (held[0] is topic or held[0] == topic):
            return held[1]
        encoded = codec.write_part(_METADATA, version, "topics", _fields(topic, brokers))
        self._encoded[topic.topic_id, version] = topic, encoded
        self._partitions += topic.partitions
        return encoded


def _fields(topic: Topic, brokers: Sequence[Broker]) -> Fields:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [_partition(topic, index, brokers) for index in range(topic.partitions)],
    }


def _partition(topic: Topic, index: int, brokers: Sequence[Broker]) -> Fields:
    leader = rendezvous(f"{topic.topic_id.hex}/{index}", brokers).broker_id
    return {
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": LEADER_EPOCH,
        "replica_nodes": (leader,),
        "isr_nodes": (leader,),
    }
