"""DeleteRecords, v0–v2.

Moves the log start of partitions, also past the frontier, up to the end; -1 means all there is. An offset below
the log start is answered with the log start. The table keeps its rows. A topic that is only compacted refuses with
POLICY_VIOLATION, as Kafka does. Other brokers follow within a second.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.stream import RecordsDelete

_ALL: Final = -1


async def handle(context: Context, request: Any) -> Reply:
    wanted = [
        RecordsDelete(topic.name, asked.partition_index, None if asked.offset == _ALL else asked.offset)
        for topic in request.topics
        for asked in topic.partitions
    ]
    deleted = iter(await context.streams.delete_records(context.principal, wanted))
    return {
        "topics": [
            {"name": topic.name, "partitions": [_fields(asked, next(deleted)) for asked in topic.partitions]}
            for topic in request.topics
        ]
    }


def _fields(asked: Any, deleted: int | LakestreamError) -> Fields:
    if isinstance(deleted, LakestreamError):
        return {"partition_index": asked.partition_index, "low_watermark": -1, "error_code": code_of(deleted)}
    return {"partition_index": asked.partition_index, "low_watermark": deleted, "error_code": ErrorCode.none}


API = api(21, handle, versions=(0, 2))
