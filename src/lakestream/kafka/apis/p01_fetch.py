"""Fetch, v4–v18.

Reads record batches from any offset; waits up to max_wait for min_bytes. Errors are per
partition, and any error answers at once. Batches go out as they are stored: the
first may start before the offset asked for, which clients skip. Rows of the table are encoded anew, and compressed
where the topic's compression.type says how; a topic of zstd needs v10, as at Kafka.
Session id 0 always: every fetch is a full one. Topic ids from v13 on. With isolation level READ_COMMITTED nothing
beyond the last stable offset is served, and aborted transactions are named that have records in the answer; what comes
from the table is committed anyway, whatever the level. A consumer that says it is in another zone
(client.rack, v11 on) in which brokers live is told one of them as its preferred replica, and nothing else. Forgotten
topics and replica fields are accepted and mean nothing. A broker that is being stopped answers
NOT_LEADER_OR_FOLLOWER.
"""

from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import fetch_code
from lakestream.kafka.wire.codec import milliseconds
from lakestream.kafka.wire.describing import partition_key
from lakestream.kafka.wire.writing import Fields, RecordParts
from lakestream.metadata.brokers import rendezvous
from lakestream.stream import Fetched, FetchRequest, TopicKey

_ZSTD_VERSION: Final = 10


async def handle(context: Context, request: Any) -> Reply:
    if getattr(request, "session_id", 0) != 0 and getattr(request, "session_epoch", -1) > 0:
        return {"error_code": ErrorCode.fetch_session_id_not_found, "responses": ()}
    if context.door.is_withdrawn:
        return _all(request, lambda key, index: _refused(index, ErrorCode.not_leader_or_follower))
    nearer = context.streams.brokers_in_zone(context.principal, getattr(request, "rack_id", ""))
    if nearer:
        return _all(
            request,
            lambda key, index: {
                **_refused(index, ErrorCode.none),
                "preferred_read_replica": rendezvous(partition_key(key, index), nearer).broker_id,
            },
        )
    wanted: list[FetchRequest] = []
    plan: list[tuple[TopicKey, list[tuple[int, ErrorCode]]]] = []
    takes_zstd = context.version >= _ZSTD_VERSION
    committed = lookup.is_committed(request)
    for topic in request.topics:
        key, parts = lookup.key_of(topic), []
        for asked in topic.partitions:
            error = lookup.epoch_error(getattr(asked, "current_leader_epoch", -1))
            if error is ErrorCode.none:
                wanted.append(
                    FetchRequest(
                        key, asked.partition, asked.fetch_offset, asked.partition_max_bytes, takes_zstd, committed
                    )
                )
            parts.append((asked.partition, error))
        plan.append((key, parts))
    refused = any(error is not ErrorCode.none for _key, parts in plan for _index, error in parts)
    found = await _read(context, request, wanted, wait=not refused)
    size_bytes = sum(each.size_bytes for each in found if isinstance(each, Fetched))
    context.throttle(context.streams.cluster.consumed(context.client_id, size_bytes))
    fetched = iter(found)
    return {
        "responses": [
            {
                **lookup.named(key),
                "partitions": [
                    _read_fields(index, next(fetched), committed) if error is ErrorCode.none else _refused(index, error)
                    for index, error in parts
                ],
            }
            for key, parts in plan
        ]
    }


def _all(request: Any, answer: Callable[[TopicKey, int], Fields]) -> Reply:
    return {
        "responses": [
            {**lookup.named(key), "partitions": [answer(key, asked.partition) for asked in topic.partitions]}
            for topic in request.topics
            for key in (lookup.key_of(topic),)
        ]
    }


async def _read(
    context: Context, request: Any, wanted: list[FetchRequest], *, wait: bool
) -> list[Fetched | LakestreamError]:
    """A client that is behind gets what is there, for which memory is set apart; only one that is not has to wait."""
    settings, answers = context.settings, context.answers
    most_bytes, least_bytes = min(max(request.max_bytes, 0), settings.max_fetch_bytes), max(request.min_bytes, 0)
    wait_ms = min(max(milliseconds(request.max_wait), 0), settings.max_fetch_wait_ms) if wait else 0
    found: list[Fetched | LakestreamError] = []
    for wait_now_ms in (0, wait_ms) if answers.is_behind and wait_ms else (wait_ms,):
        reading, size_bytes = await answers.allow(most_bytes, least_bytes, waits=wait_now_ms > 0), 0
        try:
            found = await context.streams.fetch(
                context.principal,
                wanted,
                min_bytes=min(least_bytes, reading.max_bytes),
                max_bytes=reading.max_bytes,
                max_wait_ms=wait_now_ms,
            )
            size_bytes = sum(len(part) for each in found if isinstance(each, Fetched) for part in each.parts)
        finally:
            reading.read(size_bytes)
        if size_bytes >= min(least_bytes, reading.max_bytes) or not all(isinstance(each, Fetched) for each in found):
            break
    return found


def _refused(index: int, error: ErrorCode) -> Fields:
    return {
        "partition_index": index,
        "error_code": error,
        "high_watermark": -1,
        "aborted_transactions": None,
        "records": b"",
    }


def _read_fields(index: int, fetched: Fetched | LakestreamError, committed: bool) -> Fields:
    if isinstance(fetched, LakestreamError):
        return _refused(index, fetch_code(fetched))
    return {
        "partition_index": index,
        "high_watermark": fetched.high_watermark,
        "last_stable_offset": fetched.last_stable_offset,
        "log_start_offset": fetched.log_start,
        "aborted_transactions": [
            {"producer_id": each.producer_id, "first_offset": each.first_offset} for each in fetched.aborted
        ]
        if committed
        else None,
        "records": RecordParts(fetched.parts),
    }


API = api(1, handle, versions=(4, 18), cancellable=True)
