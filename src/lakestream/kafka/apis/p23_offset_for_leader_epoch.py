"""OffsetForLeaderEpoch, v2–v4.

Where an epoch ends. There is only epoch 0, and it ends at the high watermark; a later
one is answered as Kafka answers an epoch it does not know: epoch and offset -1. Linearizable.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.describing import LEADER_EPOCH
from lakestream.kafka.wire.writing import Fields
from lakestream.stream import LATEST, OffsetAt, OffsetQuery


async def handle(context: Context, request: Any) -> Reply:
    wanted = [
        OffsetQuery(topic.topic, asked.partition, LATEST) for topic in request.topics for asked in topic.partitions
    ]
    ends = iter(await context.streams.list_offsets(context.principal, wanted))
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [_end(asked, next(ends)) for asked in topic.partitions]}
            for topic in request.topics
        ]
    }


def _end(asked: Any, end: OffsetAt | LakestreamError) -> Fields:
    if isinstance(end, LakestreamError):
        return {"partition": asked.partition, "error_code": code_of(end)}
    error = lookup.epoch_error(asked.current_leader_epoch)
    if error is not ErrorCode.none or asked.leader_epoch != LEADER_EPOCH:
        return {"partition": asked.partition, "error_code": error}
    return {"partition": asked.partition, "leader_epoch": LEADER_EPOCH, "end_offset": end.offset}


API = api(23, handle, versions=(2, 4), cancellable=True)
