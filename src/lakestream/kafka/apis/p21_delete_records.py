"""DeleteRecords, v0–v2.

Moves the log start of partitions, also past the frontier, up to the end; -1 means all there is. An offset below
the log start is answered with the log start. The table keeps its rows. A topic that is only compacted refuses with
POLICY_VIOLATION, as Kafka does. Other brokers follow within a second.
"""

import asyncio
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import Topic

_ALL: Final = -1


async def handle(context: Context, request: Any) -> Reply:
    # Never from the cache: whether records may be deleted is a setting that can change.
    topics = await lookup.find_now(context.streams, [topic.name for topic in request.topics])
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": await asyncio.gather(
                    *(_delete(context, topics, topic.name, asked) for asked in topic.partitions)
                ),
            }
            for topic in request.topics
        ]
    }


async def _delete(context: Context, topics: lookup.FoundTopics, name: str, asked: Any) -> Fields:
    topic = topics.get(name)
    partition = lookup.partition_of(topic, asked.partition_index)
    low_watermark, code = -1, _refusal(topics, name, topic, asked.offset)
    if code is ErrorCode.none and partition is None:
        code = ErrorCode.unknown_topic_or_partition
    if code is ErrorCode.none and partition is not None:
        try:
            offset = None if asked.offset == _ALL else asked.offset
            low_watermark = await context.streams.delete_records(partition, offset)
        except LakestreamError as error:
            code = lookup.partition_error(context.streams, partition.topic_id, error)
    return {"partition_index": asked.partition_index, "low_watermark": low_watermark, "error_code": code}


def _refusal(topics: lookup.FoundTopics, name: str, topic: Topic | None, offset: int) -> ErrorCode:
    if topic is None:
        return topics.refusal(name)
    if offset < _ALL:
        return ErrorCode.offset_out_of_range
    return ErrorCode.none if topic.options.deletes else ErrorCode.policy_violation


API = api(21, handle)
