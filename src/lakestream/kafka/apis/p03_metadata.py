"""Metadata, v0–v13.

Who is alive, in which zone (rack), and which topics there are. Any broker serves any partition; the leader it names is
a hint (rendezvous over the live brokers) that keeps a partition's readers on one cache. A client whose id names a zone
(`zones`) gets leaders of that zone, if a broker lives there. Replicas and ISR are the choice in each zone;
the controller is the lowest live id; the epoch is always 0.
A topic that is not there is created if the client allows it (v0–v3 always do) and the settings do.
v0 means all topics by an empty list, later versions by null; by id from v10 on. What the caller may do with a topic
(v8 on) and with the cluster (v8–v10) is told on request.
"""

from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from lakestream.errors import InvalidName, LakestreamError, UnknownStream
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.authorized import cluster_operations, topic_operations
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.describing import UNASKED
from lakestream.kafka.wire.writing import Fields
from lakestream.kafka.zones import zone_of
from lakestream.metadata.brokers import Broker
from lakestream.metadata.topics.list import Topic


async def handle(context: Context, request: Any) -> Reply:
    brokers = await context.streams.brokers(context.principal)
    return {
        "brokers": [
            {"node_id": broker.broker_id, "host": broker.host, "port": broker.port, "rack": broker.zone}
            for broker in brokers
        ],
        "cluster_id": context.streams.cluster_id,
        "controller_id": brokers[0].broker_id,
        "cluster_authorized_operations": cluster_operations(context)
        if getattr(request, "include_cluster_authorized_operations", False)
        else UNASKED,
        "topics": await _topics(context, request, brokers),
    }


async def _topics(context: Context, request: Any, brokers: list[Broker]) -> list[Fields | bytes]:
    topics, asked = context.streams.topics, request.topics
    zone = zone_of(context.client_id)

    says_operations = getattr(request, "include_topic_authorized_operations", False)

    def describe(topic: Topic) -> bytes:
        operations = topic_operations(context, topic.name) if says_operations else UNASKED
        return context.door.descriptions.of(topic, brokers, zone, context.version, operations)

    if asked is None or (context.version == 0 and not asked):
        return [describe(topic) for topic in await topics.list(context.principal)]
    create = context.settings.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)
    keys = [topic.topic_id if topic.name is None else topic.name for topic in asked]
    found = await topics.describe(
        context.principal, keys, created_with=max(context.settings.num_partitions, 1) if create else None
    )
    described: list[Fields | bytes] = []
    for key in sorted(dict.fromkeys(keys), key=lambda each: not isinstance(each, str)):
        topic = found[key]
        if isinstance(topic, LakestreamError):
            name, topic_id = (key, None) if isinstance(key, str) else (None if context.version >= 12 else "", key)
            says = says_operations and isinstance(topic, UnknownStream | InvalidName) and isinstance(key, str)
            operations = topic_operations(context, str(key)) if says else UNASKED
            described.append(_missing(code_of(topic), operations, name=name, topic_id=topic_id))
        else:
            described.append(describe(topic))
    return described


def _missing(error: ErrorCode, operations: int, *, name: str | None, topic_id: UUID | None = None) -> Fields:
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id,
        "partitions": (),
        "topic_authorized_operations": operations,
    }


API = api(3, handle, versions=(0, 13))
