"""Produce, v3–v13.

Appends record batches; acks once their WAL object is committed. Batches enter the
log in the order in which the connection brought them, and requests that are in
flight together share a flush. Each partition is answered on its own.
Only magic 2; zstd from v7 on. acks is -1, 0 or 1, and all wait for the same commit; acks=0 gets no
response, and a failure closes the connection instead. v13 names topics by id.
Transactional batches are refused with INVALID_REQUEST until transactions exist.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka import lookup
from lakestream.kafka.api import Context, Reply, api
from lakestream.kafka.codec import Fields, milliseconds
from lakestream.kafka.errors import code_of
from lakestream.kafka.lookup import TopicKey
from lakestream.metadata.topics import Topic
from lakestream.model import StreamPartition
from lakestream.stream import Appended

_ACKS: Final = (-1, 0, 1)
_ZSTD: Final = 4
_ZSTD_VERSION: Final = 7
_ATTRIBUTES: Final = 21
"""Where a batch keeps its attributes; the low three bits of their second byte name the compression."""

_Taken = tuple[TopicKey, int, StreamPartition | None, "ErrorCode | asyncio.Future[Appended]"]


async def handle(context: Context, request: Any) -> Reply | Awaitable[Reply]:
    taken = await _append_all(context, request)
    pending = [outcome for *_, outcome in taken if isinstance(outcome, asyncio.Future)]
    context.holds.extend(pending)
    if request.acks == 0:
        _close_on_failure(context, taken)
        return None
    if not pending:
        return _response(context, taken)
    return _acknowledged(context, taken, pending, milliseconds(request.timeout))


async def _append_all(context: Context, request: Any) -> list[_Taken]:
    refusal = None
    if request.acks not in _ACKS:
        refusal = ErrorCode.invalid_required_acks
    elif request.transactional_id is not None:
        refusal = ErrorCode.invalid_request
    streams, taken, topics = context.streams, list[_Taken](), dict[TopicKey, Topic]()
    if refusal is None:
        try:
            topics = await lookup.find(streams, [lookup.key_of(topic) for topic in request.topic_data])
        except LakestreamError as error:
            refusal = code_of(error)
    for topic in request.topic_data:
        key = lookup.key_of(topic)
        found = topics.get(key)
        for data in topic.partition_data:
            partition = lookup.partition_of(found, data.index)
            if refusal is not None:
                taken.append((key, data.index, None, refusal))
            elif found is None:
                taken.append((key, data.index, None, lookup.unknown(key)))
            elif partition is None:
                taken.append((key, data.index, None, ErrorCode.unknown_topic_or_partition))
            elif not data.records:
                taken.append((key, data.index, None, ErrorCode.invalid_record))
            elif context.version < _ZSTD_VERSION and _codec(data.records) == _ZSTD:
                taken.append((key, data.index, None, ErrorCode.unsupported_compression_type))
            else:
                taken.append((key, data.index, partition, streams.append(partition, data.records)))
    return taken


def _codec(records: bytes) -> int:
    return records[_ATTRIBUTES + 1] & 7 if len(records) > _ATTRIBUTES + 1 else 0


async def _acknowledged(
    context: Context, taken: list[_Taken], pending: list["asyncio.Future[Appended]"], timeout_ms: int
) -> Reply:
    # wait() leaves the futures alone when it is out of time: an append that was taken in goes on.
    await asyncio.wait(pending, timeout=max(timeout_ms, 1) / 1000)
    return _response(context, taken)


def _response(context: Context, taken: list[_Taken]) -> Fields:
    topics: dict[TopicKey, list[Fields]] = {}
    for key, index, partition, outcome in taken:
        topics.setdefault(key, []).append({"index": index, **_partition_fields(context, partition, outcome)})
    return {"responses": [{**lookup.named(key), "partition_responses": each} for key, each in topics.items()]}


def _partition_fields(
    context: Context, partition: StreamPartition | None, outcome: "ErrorCode | asyncio.Future[Appended]"
) -> Fields:
    if isinstance(outcome, ErrorCode):
        return {"error_code": outcome, "base_offset": -1, "record_errors": ()}
    if not outcome.done():
        return {"error_code": ErrorCode.request_timed_out, "base_offset": -1, "record_errors": ()}
    error = outcome.exception()
    if error is None:
        appended = outcome.result()
        return {"base_offset": appended.base_offset, "log_start_offset": appended.log_start, "record_errors": ()}
    if not isinstance(error, LakestreamError) or partition is None:
        raise error
    code = lookup.partition_error(context.streams, partition.topic_id, error)
    return {"error_code": code, "base_offset": -1, "record_errors": (), "error_message": str(error)}


def _close_on_failure(context: Context, taken: list[_Taken]) -> None:
    def ended(future: "asyncio.Future[Appended]") -> None:
        error = future.exception()
        if error is not None:
            context.close(f"acks=0 and an append failed: {error}")

    for key, index, _, outcome in taken:
        if isinstance(outcome, asyncio.Future):
            outcome.add_done_callback(ended)
        else:
            context.close(f"acks=0 and {key}-{index} was refused: {outcome.name}")


API = api(0, handle, ordered=True)
