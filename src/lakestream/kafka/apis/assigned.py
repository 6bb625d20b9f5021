"""Partitions of members, as answers have them."""

from lakestream.coordination.groups.consumer.model import Partitions
from lakestream.coordination.groups.consumer.topics import KnownTopics
from lakestream.kafka.wire.writing import Fields


def assigned_fields(partitions: Partitions | None) -> Fields | None:
    """By topics' ids. None: there is nothing new."""
    if partitions is None:
        return None
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "partitions": sorted(partitions[topic_id])} for topic_id in sorted(partitions)
        ]
    }


def described_partitions(partitions: Partitions, topics: KnownTopics) -> Fields:
    """With the topics' names; without those of topics that are gone."""
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topics.names[topic_id], "partitions": sorted(partitions[topic_id])}
            for topic_id in sorted(partitions)
            if topic_id in topics.names
        ]
    }
