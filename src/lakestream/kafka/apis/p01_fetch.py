"""Fetch, v4–v18.

Reads record batches from any offset; waits up to max_wait for min_bytes. Errors are per
partition, and any error answers at once. Batches go out as they are stored: the
first may start before the offset asked for, which clients skip. Rows of the table are encoded anew, and compressed
where the topic's compression.type says how; a topic of zstd needs v10, as at Kafka.
Session id 0 always: every fetch is a full one. Topic ids from v13 on. There are no
open or aborted transactions, so both isolation levels read the same. Forgotten
topics, replica fields and the rack are accepted and mean nothing.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import fetch_code
from lakestream.kafka.wire.codec import milliseconds
from lakestream.kafka.wire.writing import Fields, RecordParts
from lakestream.stream import Fetched, FetchPartition

_ZSTD: Final = 4
_ZSTD_VERSION: Final = 10


async def handle(context: Context, request: Any) -> Reply:
    if getattr(request, "session_id", 0) != 0 and getattr(request, "session_epoch", -1) > 0:
        return {"error_code": ErrorCode.fetch_session_id_not_found, "responses": ()}
    wanted: list[FetchPartition] = []
    plan: list[tuple[lookup.TopicKey, list[tuple[int, ErrorCode | None]]]] = []
    topics = await lookup.find(context.streams, [lookup.key_of(topic) for topic in request.topics])
    failed = False
    for topic in request.topics:
        key = lookup.key_of(topic)
        found, parts = topics.get(key), []
        compression = None if found is None else found.options.compression
        for asked in topic.partitions:
            error: ErrorCode | None = lookup.epoch_error(getattr(asked, "current_leader_epoch", -1))
            partition = lookup.partition_of(found, asked.partition)
            if partition is None:
                error = topics.refusal(key) if found is None else ErrorCode.unknown_topic_or_partition
            elif compression is not None and compression.codec == _ZSTD and context.version < _ZSTD_VERSION:
                error = ErrorCode.unsupported_compression_type
            if partition is not None and error is ErrorCode.none:
                error = None
                wanted.append(FetchPartition(partition, asked.fetch_offset, asked.partition_max_bytes, compression))
            failed = failed or error is not None
            parts.append((asked.partition, error))
        plan.append((key, parts))
    fetched = iter(await _read(context, request, wanted, wait=not failed))
    return {
        "responses": [
            {
                **lookup.named(key),
                "partitions": [
                    _refused(index, error) if error is not None else _read_fields(context, next(fetched))
                    for index, error in parts
                ],
            }
            for key, parts in plan
        ]
    }


async def _read(context: Context, request: Any, wanted: list[FetchPartition], *, wait: bool) -> list[Fetched]:
    if not wanted:
        return []
    settings = context.settings
    return await context.streams.fetch(
        wanted,
        min_bytes=max(request.min_bytes, 0),
        max_bytes=min(max(request.max_bytes, 0), settings.max_fetch_bytes),
        max_wait_ms=min(max(milliseconds(request.max_wait), 0), settings.max_fetch_wait_ms) if wait else 0,
    )


def _refused(index: int, error: ErrorCode) -> Fields:
    return {
        "partition_index": index,
        "error_code": error,
        "high_watermark": -1,
        "aborted_transactions": None,
        "records": b"",
    }


def _read_fields(context: Context, fetched: Fetched) -> Fields:
    partition = fetched.partition
    if fetched.error is not None:
        code = lookup.partition_error(context.streams, partition.topic_id, fetched.error, fetch_code)
        return _refused(partition.index, code)
    return {
        "partition_index": partition.index,
        "high_watermark": fetched.high_watermark,
        "last_stable_offset": fetched.high_watermark,
        "log_start_offset": fetched.log_start,
        "aborted_transactions": None,
        "records": RecordParts(fetched.parts),
    }


API = api(1, handle, cancellable=True)
