"""DescribeTopicPartitions, v0.

Topics with their partitions, in order of their names and a page at a time: a page ends at the limit (at most 2000, at
least one partition), and the cursor says where the next begins. Without names: all topics. Partitions are as in
Metadata.
"""

from bisect import bisect_left
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.authorized import topic_operations
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.kafka.zones import zone_of
from lakestream.metadata.topics.list import Topic

_MOST: Final = 2_000


async def handle(context: Context, request: Any) -> Reply:
    cursor = request.cursor
    asked = sorted({topic.name for topic in request.topics})
    start, first = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    if first < 0 or (cursor is not None and asked and start not in asked):
        return {"topics": [_missing(name, ErrorCode.invalid_request) for name in asked], "next_cursor": None}
    if asked:
        names = asked[bisect_left(asked, start) :]
        found = await context.streams.topics.describe(context.principal, names)
        listed: list[tuple[str, object]] = [(name, found[name]) for name in names]
    else:
        every = await context.streams.topics.list(context.principal)
        listed = [(topic.name, topic) for topic in every if topic.name >= start]
    brokers = await context.streams.brokers(context.principal)
    zone, left = zone_of(context.client_id), min(max(request.response_partition_limit, 1), _MOST)
    topics: list[Fields] = []
    following: Fields | None = None
    for name, topic in listed:
        if not isinstance(topic, Topic):
            code = code_of(topic) if isinstance(topic, LakestreamError) else ErrorCode.unknown_topic_or_partition
            known = {} if code is not ErrorCode.unknown_topic_or_partition else _operations(context, name)
            topics.append({**_missing(name, code), **known})
            continue
        if not left:
            following = {"topic_name": name, "partition_index": 0}
            break
        begin = first if name == start else 0
        end = min(begin + left, topic.partitions)
        described = context.door.descriptions.partitions(topic, brokers, zone)[begin:end]
        topics.append(
            {
                "error_code": ErrorCode.none,
                "name": name,
                "topic_id": topic.topic_id,
                "is_internal": False,
                "partitions": [
                    {**each, "eligible_leader_replicas": (), "last_known_elr": (), "offline_replicas": ()}
                    for each in described
                ],
                **_operations(context, name),
            }
        )
        left -= max(0, end - begin)
        if end < topic.partitions:
            following = {"topic_name": name, "partition_index": end}
            break
    return {"topics": topics, "next_cursor": following}


def _operations(context: Context, name: str) -> Fields:
    """Also of a topic that is not there, for whoever may describe it."""
    return {"topic_authorized_operations": topic_operations(context, name)}


def _missing(name: str, code: ErrorCode) -> Fields:
    return {"error_code": code, "name": name, "topic_id": None, "is_internal": False, "partitions": ()}


API = api(75, handle, versions=(0, 0))
