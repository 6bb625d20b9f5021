"""AddPartitionsToTxn, v0–v5.

v0 to v3 come from producers: partitions join the producer's transaction, which begins with the first. All or none: if
one is unknown or denied, the others are OPERATION_NOT_ATTEMPTED. Clients of transactions' version 2 do not ask: their
batches bring the partition along.
v4 and v5 are for brokers of Kafka: many transactions at once, for those who may do what brokers do; with verify_only
nothing is added, and what is not in the transaction is TRANSACTION_ABORTABLE.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.transactions import Producer
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of, transaction_code
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition

_OF_BROKERS: Final = 4
_KNOWS_FENCED: Final = 2

_Place = tuple[str, int]


async def handle(context: Context, request: Any) -> Reply:
    if context.version < _OF_BROKERS:
        producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        codes = await _added(context, request.v3_and_below_transactional_id, producer, request.v3_and_below_topics)
        return {"results_by_topic_v3_and_below": _results(request.v3_and_below_topics, codes)}
    try:
        context.transactions.check_broker(context.principal)
    except LakestreamError as error:
        return {"error_code": transaction_code(error), "results_by_transaction": ()}
    results = await asyncio.gather(*(_of_broker(context, each) for each in request.transactions))
    return {"error_code": ErrorCode.none, "results_by_transaction": results}


async def _added(
    context: Context, transactional_id: str, producer: Producer, topics: Sequence[Any]
) -> Mapping[_Place, ErrorCode]:
    try:
        context.transactions.check(context.principal, transactional_id)
        partitions, refused = await _found(context, topics, Operation.WRITE)
        if refused:
            return dict.fromkeys(partitions, ErrorCode.operation_not_attempted) | refused
        await context.transactions.add_partitions(
            context.principal, transactional_id, producer, list(partitions.values())
        )
        code = ErrorCode.none
    except LakestreamError as error:
        code = transaction_code(error, knows_fenced=context.version >= _KNOWS_FENCED)
    return dict.fromkeys(_places(topics), code)


async def _of_broker(context: Context, asked: Any) -> Fields:
    producer = Producer(asked.producer_id, asked.producer_epoch)
    codes: Mapping[_Place, ErrorCode]
    try:
        partitions, refused = await _found(context, asked.topics, Operation.DESCRIBE)
        if refused:
            codes = dict.fromkeys(partitions, ErrorCode.operation_not_attempted) | refused
        elif asked.verify_only:
            has = await context.transactions.verify_for_broker(
                context.principal, asked.transactional_id, producer, list(partitions.values())
            )
            codes = {
                place: ErrorCode.none if is_in else ErrorCode.transaction_abortable
                for place, is_in in zip(partitions, has, strict=True)
            }
        else:
            await context.transactions.add_for_broker(
                context.principal, asked.transactional_id, producer, list(partitions.values())
            )
            codes = dict.fromkeys(partitions, ErrorCode.none)
    except LakestreamError as error:
        codes = dict.fromkeys(_places(asked.topics), transaction_code(error))
    return {"transactional_id": asked.transactional_id, "topic_results": _results(asked.topics, codes)}


async def _found(
    context: Context, topics: Sequence[Any], operation: Operation
) -> tuple[dict[_Place, StreamPartition], dict[_Place, ErrorCode]]:
    """The partitions that are there, and what is wrong with the others."""
    found = await context.streams.find(context.principal, operation, [topic.name for topic in topics])
    partitions: dict[_Place, StreamPartition] = {}
    refused: dict[_Place, ErrorCode] = {}
    for name, index in _places(topics):
        topic = found[name]
        if not isinstance(topic, Topic):
            refused[name, index] = code_of(topic)
        elif not 0 <= index < topic.partitions:
            refused[name, index] = ErrorCode.unknown_topic_or_partition
        else:
            partitions[name, index] = StreamPartition(topic.topic_id, index)
    return partitions, refused


def _places(topics: Sequence[Any]) -> list[_Place]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(topics: Sequence[Any], codes: Mapping[_Place, ErrorCode]) -> list[Fields]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": codes[topic.name, index]}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]


API = api(24, handle, versions=(0, 5))
