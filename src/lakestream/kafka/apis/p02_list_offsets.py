"""ListOffsets, v1–v11.

Offsets by time: -2 earliest, -1 latest (the high watermark, in both isolation levels), -3 the record
with the newest timestamp, else the first record at or after the time. No such record: offset -1.
-4 (earliest local) is the earliest offset, since nothing is local; -5 (latest tiered) and -6 (earliest
pending upload) belong to a tiering that does not exist here: -1. Linearizable.
"""

import asyncio
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.wire.describing import LEADER_EPOCH
from lakestream.kafka.wire.writing import Fields
from lakestream.stream import EARLIEST

_EARLIEST_LOCAL: Final = -4
_NO_TIER: Final = (-5, -6)


async def handle(context: Context, request: Any) -> Reply:
    topics = await lookup.find(context.streams, [topic.name for topic in request.topics])
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": await asyncio.gather(
                    *(_find(context, topics, topic.name, asked) for asked in topic.partitions)
                ),
            }
            for topic in request.topics
        ]
    }


async def _find(context: Context, topics: lookup.FoundTopics, name: str, asked: Any) -> Fields:
    partition = lookup.partition_of(topics.get(name), asked.partition_index)
    error = lookup.epoch_error(getattr(asked, "current_leader_epoch", -1))
    if partition is None:
        error = topics.refusal(name)
    elif asked.timestamp < min(_NO_TIER):
        error = ErrorCode.invalid_request
    if partition is None or error is not ErrorCode.none or asked.timestamp in _NO_TIER:
        return {"partition_index": asked.partition_index, "error_code": error}
    timestamp_ms = EARLIEST if asked.timestamp == _EARLIEST_LOCAL else asked.timestamp
    try:
        at = await context.streams.list_offset(partition, timestamp_ms)
    except LakestreamError as failure:
        code = lookup.partition_error(context.streams, partition.topic_id, failure)
        return {"partition_index": asked.partition_index, "error_code": code}
    return {
        "partition_index": asked.partition_index,
        "timestamp": at.timestamp_ms,
        "offset": at.offset,
        "leader_epoch": LEADER_EPOCH if at.offset >= 0 else -1,
    }


API = api(2, handle, cancellable=True)
