"""Metadata, v0–v13.

Who is alive and which topics there are. Any broker serves any partition; the leader it names is a
hint (rendezvous over the live brokers) that keeps a partition's readers on one cache. Replicas
and ISR are that leader; the controller is the lowest live id; the epoch is always 0.
A topic that is not there is created if the client allows it (v0–v3 always do) and the settings do.
v0 means all topics by an empty list, later versions by null; by id from v10 on.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from lakestream.errors import CorruptObject, InvalidStream, LakestreamError, StreamExists
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.brokers import Broker
from lakestream.metadata.topics.list import Topic, check_name

log = logging.getLogger(__name__)


async def handle(context: Context, request: Any) -> Reply:
    streams = context.streams
    brokers = await streams.brokers.live() or [streams.broker]
    return {
        "brokers": [
            {"node_id": broker.broker_id, "host": broker.host, "port": broker.port, "rack": broker.zone}
            for broker in brokers
        ],
        "cluster_id": streams.cluster_id,
        "controller_id": brokers[0].broker_id,
        "topics": await _topics(context, request, brokers),
    }


async def _topics(context: Context, request: Any, brokers: list[Broker]) -> list[Fields | bytes]:
    streams, asked = context.streams, request.topics

    def describe(topic: Topic) -> bytes:
        return context.door.descriptions.of(topic, brokers, context.version)

    if asked is None or (context.version == 0 and not asked):
        return [describe(topic) for topic in await streams.topics.list()]
    topic_ids = [topic_id for topic in asked if topic.name is None and (topic_id := topic.topic_id) is not None]
    by_id = await streams.topics.find_ids(topic_ids) if topic_ids else {}
    names = dict.fromkeys(topic.name for topic in asked if topic.name is not None)
    by_name = await streams.topics.find_names([name for name in names if _legal(name)]) if names else {}
    create = context.settings.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)
    missing = [name for name in names if create and _legal(name) and name not in by_name]
    created = dict(
        zip(missing, await asyncio.gather(*(_created(context, name, describe) for name in missing)), strict=True)
    )
    described: list[Fields | bytes] = []
    for name in names:
        found = by_name.get(name)
        if isinstance(found, CorruptObject):
            described.append(_damaged(found, name=name))
        elif found is not None:
            described.append(describe(found))
        elif not _legal(name):
            described.append(_missing(ErrorCode.invalid_topic_exception, name=name))
        elif name in created:
            described.append(created[name])
        else:
            described.append(_missing(ErrorCode.unknown_topic_or_partition, name=name))
    for topic in asked:
        if topic.name is None:
            found = by_id.get(topic.topic_id)
            nameless = None if context.version >= 12 else ""
            if isinstance(found, CorruptObject):
                described.append(_damaged(found, name=nameless, topic_id=topic.topic_id))
            elif found is not None:
                described.append(describe(found))
            else:
                described.append(_missing(ErrorCode.unknown_topic_id, name=nameless, topic_id=topic.topic_id))
    return described


async def _created(context: Context, name: str, describe: Callable[[Topic], bytes]) -> Fields | bytes:
    """Creates a topic that a client asked about; somebody else doing the same is no error."""
    try:
        return describe(await context.streams.create_topic(name, max(context.settings.num_partitions, 1), {}))
    except StreamExists:
        topic = (await context.streams.topics.by_names([name])).get(name)
        if topic is not None:
            return describe(topic)
        return _missing(ErrorCode.leader_not_available, name=name)
    except LakestreamError as error:
        return _missing(code_of(error), name=name)


def _legal(name: str) -> bool:
    try:
        check_name(name)
    except InvalidStream:
        return False
    return True


def _damaged(error: CorruptObject, *, name: str | None, topic_id: UUID | None = None) -> Fields:
    log.error("topic %s cannot be served: %s", name or topic_id, error)
    return _missing(code_of(error), name=name, topic_id=topic_id)


def _missing(error: ErrorCode, *, name: str | None, topic_id: UUID | None = None) -> Fields:
    return {"error_code": error, "name": name, "topic_id": topic_id, "partitions": ()}


API = api(3, handle)
