"""WriteTxnMarkers, v1–v2.

Among brokers of Kafka it ends transactions; here tools use it, to end one that hangs, for those who may alter the
cluster. What the producer has open in a partition ends there. A transaction that is open as a whole is aborted as a
whole, and never committed by others: INVALID_TXN_STATE. Where the producer has nothing open there is nothing to write.
The epoch of a coordinator means nothing: there is none.
"""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.transactions import Producer
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of, transaction_code
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition


async def handle(context: Context, request: Any) -> Reply:
    return {"markers": await asyncio.gather(*(_marker(context, marker) for marker in request.markers))}


async def _marker(context: Context, marker: Any) -> Fields:
    places = [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
    codes: dict[tuple[str, int], ErrorCode] = {}
    try:
        context.transactions.check_operator(context.principal)
        partitions = {}
        found = await context.streams.find(context.principal, Operation.DESCRIBE, [name for name, _ in places])
        for name, index in places:
            topic = found[name]
            if not isinstance(topic, Topic):
                codes[name, index] = code_of(topic)
            elif not 0 <= index < topic.partitions:
                codes[name, index] = ErrorCode.unknown_topic_or_partition
            else:
                partitions[name, index] = StreamPartition(topic.topic_id, index)
        ended = await context.transactions.end_hanging(
            context.principal,
            Producer(marker.producer_id, marker.producer_epoch),
            list(partitions.values()),
            committed=marker.transaction_result,
        )
        for place, error in zip(partitions, ended, strict=True):
            codes[place] = ErrorCode.none if error is None else transaction_code(error, knows_fenced=False)
    except LakestreamError as error:
        codes = dict.fromkeys(places, transaction_code(error))
    return {
        "producer_id": marker.producer_id,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": codes[topic.name, index]}
                    for index in topic.partition_indexes
                ],
            }
            for topic in marker.topics
        ],
    }


API = api(27, handle, versions=(1, 2))
