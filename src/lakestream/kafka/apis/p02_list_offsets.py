"""ListOffsets, v1–v11.

Offsets by time: -2 earliest, -1 latest (the high watermark, with READ_COMMITTED the last stable offset), -3 the record
with the newest timestamp, else the first record at or after the time. No such record, or with READ_COMMITTED none below
the last stable offset: offset -1.
-4 (earliest local) is the earliest offset, since nothing is local; -5 (latest tiered) and -6 (earliest
pending upload) belong to a tiering that does not exist here: -1. Linearizable.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.describing import LEADER_EPOCH
from lakestream.kafka.wire.writing import Fields
from lakestream.stream import EARLIEST, LATEST, OffsetAt, OffsetQuery

_EARLIEST_LOCAL: Final = -4
_NO_TIER: Final = (-5, -6)


async def handle(context: Context, request: Any) -> Reply:
    asked = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    committed = lookup.is_committed(request)
    wanted = [
        OffsetQuery(name, each.partition_index, _time_of(each), committed)
        for name, each in asked
        if _refusal(each) is None
    ]
    found = iter(await context.streams.list_offsets(context.principal, wanted))
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _failed(each, refusal) if (refusal := _refusal(each)) is not None else _fields(each, next(found))
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _refusal(asked: Any) -> ErrorCode | None:
    error = lookup.epoch_error(getattr(asked, "current_leader_epoch", -1))
    if error is not ErrorCode.none:
        return error
    return ErrorCode.invalid_request if asked.timestamp < min(_NO_TIER) else None


def _time_of(asked: Any) -> int:
    if asked.timestamp in _NO_TIER:
        return LATEST
    timestamp_ms: int = asked.timestamp
    return EARLIEST if timestamp_ms == _EARLIEST_LOCAL else timestamp_ms


def _fields(asked: Any, at: OffsetAt | LakestreamError) -> Fields:
    if isinstance(at, LakestreamError):
        return _failed(asked, code_of(at))
    if asked.timestamp in _NO_TIER:
        return _failed(asked, ErrorCode.none)
    return {
        "partition_index": asked.partition_index,
        "timestamp": at.timestamp_ms,
        "offset": at.offset,
        "leader_epoch": LEADER_EPOCH if at.offset >= 0 else -1,
    }


def _failed(asked: Any, code: ErrorCode) -> Fields:
    return {"partition_index": asked.partition_index, "error_code": code}


API = api(2, handle, versions=(1, 11), cancellable=True)
