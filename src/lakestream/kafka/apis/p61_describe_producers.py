"""DescribeProducers, v0.

The idempotent producers that a partition remembers, and where the transaction begins that each has open in it.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.stream import KnownProducer


async def handle(context: Context, request: Any) -> Reply:
    asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    found = iter(await context.streams.cluster.producers(context.principal, asked))
    return {
        "topics": [
            {"name": topic.name, "partitions": [_fields(index, next(found)) for index in topic.partition_indexes]}
            for topic in request.topics
        ]
    }


def _fields(index: int, found: list[KnownProducer] | LakestreamError) -> Fields:
    if isinstance(found, LakestreamError):
        return {
            "partition_index": index,
            "error_code": code_of(found),
            "error_message": str(found),
            "active_producers": (),
        }
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "error_message": None,
        "active_producers": [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.epoch,
                "last_sequence": each.last_sequence,
                "last_timestamp": each.last_timestamp_ms,
                "coordinator_epoch": each.coordinator_epoch,
                "current_txn_start_offset": each.open_offset,
            }
            for each in found
        ],
    }


API = api(61, handle, versions=(0, 0))
