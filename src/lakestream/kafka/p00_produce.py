"""Produce, v3–v13.

Appends record batches; acks once their WAL object is committed. Batches enter the
log in the order in which the connection brought them, and requests that are in
flight together share a flush. Each partition is answered on its own.
Only magic 2; zstd from v7 on. acks is -1, 0 or 1, and all wait for the same commit; acks=0 gets no
response, and a failure closes the connection instead. v13 names topics by id.
A topic that compacts takes records with a key only: INVALID_RECORD.
Transactional batches are refused with INVALID_REQUEST until transactions exist.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, NamedTuple, Union

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka import lookup
from lakestream.kafka.api import Context, Reply, Taken, ordered_api
from lakestream.kafka.codec import milliseconds
from lakestream.kafka.errors import code_of
from lakestream.kafka.lookup import TopicKey
from lakestream.kafka.writing import Fields
from lakestream.model import StreamPartition
from lakestream.objects import Buffer
from lakestream.records import lacks_key
from lakestream.stream import Appended

_ACKS: Final = (-1, 0, 1)
_ZSTD: Final = 4
_ZSTD_VERSION: Final = 7
_ATTRIBUTES: Final = 21
"""Where a batch keeps its attributes; the low three bits of their second byte name the compression."""

_Outcome = Union[ErrorCode, "asyncio.Future[Appended]"]


class _Taken(NamedTuple):
    """One partition of the request: refused at once, or under way."""

    key: TopicKey
    number: int
    partition: StreamPartition | None
    outcome: _Outcome


def admit(context: Context, request: Any) -> Taken | Coroutine[Any, Any, Taken]:
    keys = [lookup.key_of(topic) for topic in request.topic_data]
    topics = lookup.cached(context.streams, keys)
    return _looked_up(context, request, keys) if topics is None else _take(context, request, topics)


async def _looked_up(context: Context, request: Any, keys: list[TopicKey]) -> Taken:
    try:
        return _take(context, request, await lookup.find(context.streams, keys))
    except LakestreamError as error:
        return _take(context, request, lookup.Found(), refusal=code_of(error))


def _take(context: Context, request: Any, topics: lookup.Found, refusal: ErrorCode | None = None) -> Taken:
    if request.acks not in _ACKS:
        refusal = ErrorCode.invalid_required_acks
    elif request.transactional_id is not None:
        refusal = ErrorCode.invalid_request
    taken = [
        _Taken(key, data.index, *_append(context, topics, key, data, refusal))
        for topic in request.topic_data
        for key in (lookup.key_of(topic),)
        for data in topic.partition_data
    ]
    pending = [each.outcome for each in taken if isinstance(each.outcome, asyncio.Future)]
    context.holds.extend(pending)
    if request.acks == 0:
        _close_on_failure(context, taken)
        return None
    if not pending:
        return _response(context, taken)
    return _acknowledged(context, taken, pending, milliseconds(request.timeout))


def _append(
    context: Context, topics: lookup.Found, key: TopicKey, data: Any, refusal: ErrorCode | None
) -> tuple[StreamPartition | None, _Outcome]:
    topic = topics.get(key)
    partition = lookup.partition_of(topic, data.index)
    if refusal is not None:
        return None, refusal
    if partition is None:
        return None, topics.refusal(key) if topic is None else ErrorCode.unknown_topic_or_partition
    if not data.records:
        return None, ErrorCode.invalid_record
    if context.version < _ZSTD_VERSION and _codec(data.records) == _ZSTD:
        return None, ErrorCode.unsupported_compression_type
    if topic is not None and topic.compacts and lacks_key(data.records):
        return None, ErrorCode.invalid_record
    return partition, context.streams.append(partition, data.records)


def _codec(records: Buffer) -> int:
    return records[_ATTRIBUTES + 1] & 7 if len(records) > _ATTRIBUTES + 1 else 0


def _acknowledged(
    context: Context, taken: Sequence[_Taken], pending: Sequence["asyncio.Future[Appended]"], timeout_ms: int
) -> "asyncio.Future[Reply]":
    """Done when all are decided or time is out; an append that was taken in goes on in any case."""
    loop = asyncio.get_running_loop()
    reply: asyncio.Future[Reply] = loop.create_future()
    left = len(pending)

    def answer() -> None:
        defect = next((error for error in map(_error, pending) if not isinstance(error, LakestreamError | None)), None)
        if reply.done():
            return
        if defect is not None:
            reply.set_exception(defect)
        else:
            reply.set_result(_response(context, taken))

    def ended(_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            timer.cancel()
            answer()

    timer = loop.call_later(max(timeout_ms, 1) / 1000, answer)
    for future in pending:
        future.add_done_callback(ended)
    return reply


def _error(outcome: "asyncio.Future[Appended]") -> BaseException | None:
    return outcome.exception() if outcome.done() else None


def _response(context: Context, taken: Sequence[_Taken]) -> Fields:
    topics: dict[TopicKey, list[Fields]] = {}
    for each in taken:
        topics.setdefault(each.key, []).append(_partition_fields(context, each))
    return {"responses": [{**lookup.named(key), "partition_responses": parts} for key, parts in topics.items()]}


def _partition_fields(context: Context, taken: _Taken) -> Fields:
    outcome, code, message = taken.outcome, ErrorCode.none, None
    if isinstance(outcome, ErrorCode):
        code = outcome
    elif not outcome.done():
        code = ErrorCode.request_timed_out
    else:
        error = outcome.exception()
        if error is None:
            appended = outcome.result()
            return {
                "index": taken.number,
                "base_offset": appended.base_offset,
                "log_start_offset": appended.log_start,
                "record_errors": (),
            }
        assert isinstance(error, LakestreamError)
        assert taken.partition is not None
        code, message = lookup.partition_error(context.streams, taken.partition.topic_id, error), str(error)
    return {
        "index": taken.number,
        "error_code": code,
        "base_offset": -1,
        "record_errors": (),
        "error_message": message,
    }


def _close_on_failure(context: Context, taken: Sequence[_Taken]) -> None:
    def ended(future: "asyncio.Future[Appended]") -> None:
        error = future.exception()
        if error is not None:
            context.close(f"acks=0 and an append failed: {error}")

    for each in taken:
        if isinstance(each.outcome, asyncio.Future):
            each.outcome.add_done_callback(ended)
        else:
            context.close(f"acks=0 and {each.key}-{each.number} was refused: {each.outcome.name}")


API = ordered_api(0, admit)
