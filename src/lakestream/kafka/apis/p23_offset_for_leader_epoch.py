"""OffsetForLeaderEpoch, v2–v4.

Where an epoch ends. There is only epoch 0, and it ends at the high watermark; a later
one is answered as Kafka answers an epoch it does not know: epoch and offset -1. Linearizable.
"""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.wire.describing import LEADER_EPOCH
from lakestream.kafka.wire.writing import Fields
from lakestream.stream import LATEST


async def handle(context: Context, request: Any) -> Reply:
    topics = await lookup.find(context.streams, [topic.topic for topic in request.topics])
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": await asyncio.gather(
                    *(_end(context, topics, topic.topic, asked) for asked in topic.partitions)
                ),
            }
            for topic in request.topics
        ]
    }


async def _end(context: Context, topics: lookup.FoundTopics, name: str, asked: Any) -> Fields:
    partition = lookup.partition_of(topics.get(name), asked.partition)
    if partition is None:
        return {"partition": asked.partition, "error_code": topics.refusal(name)}
    error = lookup.epoch_error(asked.current_leader_epoch)
    if error is not ErrorCode.none or asked.leader_epoch != LEADER_EPOCH:
        return {"partition": asked.partition, "error_code": error}
    try:
        end = await context.streams.list_offset(partition, LATEST)
    except LakestreamError as failure:
        code = lookup.partition_error(context.streams, partition.topic_id, failure)
        return {"partition": asked.partition, "error_code": code}
    return {"partition": asked.partition, "leader_epoch": LEADER_EPOCH, "end_offset": end.offset}


API = api(23, handle, cancellable=True)
