"""Produce, v3–v13, told as v0–v13.

As Kafka 4 does: librdkafka before 2.1 takes a lowest version above 0 for a broker that knows no compression but zstd. A
request of v0, v1 or v2 closes its connection, there as here.
Appends record batches; acks once their WAL object is committed. Batches enter the
log in the order in which the connection brought them, and requests that are in
flight together share a flush. Each partition is answered on its own.
Batches are checked to the last byte before any is appended, large ones off the event loop.
Only magic 2; zstd from v7 on. acks is -1, 0 or 1, and all wait for the same commit; acks=0 gets no
response, and a failure closes the connection instead. v13 names topics by id.
A topic's settings say what it takes: a record without a key on a compacted topic is INVALID_RECORD, a timestamp too
far from the broker's INVALID_TIMESTAMP, a batch above max.message.bytes MESSAGE_TOO_LARGE. From v8 on the answer names
the records to blame. With message.timestamp.type=LogAppendTime the answer has the time that the records were given,
for a retry that of its first attempt.
Transactional requests are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED until transactions exist.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Union

from kio.schema.errors import ErrorCode

from lakestream.errors import InvalidRecords, InvalidSetting, LakestreamError, RequestError, UnknownProducer
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, Taken, ordered_api
from lakestream.kafka.apis.checking import Checked, ReceivedBatch, check_all, check_small, codec_of
from lakestream.kafka.apis.lookup import TopicKey
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.codec import milliseconds
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.options import batch_rules
from lakestream.model import StreamPartition
from lakestream.stream import Appended

_ACKS: Final = (-1, 0, 1)
_ZSTD: Final = 4
_ZSTD_VERSION: Final = 7
_NO_TIME: Final = -1
_TOLD_FAULTS: Final = 100
"""Records whose faults are put in words; the others are named by their places."""

_Outcome = Union[ErrorCode, RequestError, "asyncio.Future[Appended]"]


class _Asked(NamedTuple):
    """One partition of the request, as it names it. `refusal`: what is wrong with it at first sight."""

    key: TopicKey
    number: int
    partition: StreamPartition | None
    batch: ReceivedBatch | None
    refusal: ErrorCode | None


class _Taken(NamedTuple):
    """One partition of the request: refused at once, or under way."""

    key: TopicKey
    number: int
    partition: StreamPartition | None
    outcome: _Outcome


def admit(context: Context, request: Any) -> Taken | Coroutine[Any, Any, Taken]:
    keys = [lookup.key_of(topic) for topic in request.topic_data]
    topics = lookup.cached(context.streams, keys)
    if topics is None:
        return _looked_up(context, request, keys)
    asked = _read(context, request, topics)
    checked = check_small(_batches(asked), context.streams.runtime.clock.now_ms())
    return _checked_aside(context, request, asked) if checked is None else _take(context, request, asked, checked)


async def _looked_up(context: Context, request: Any, keys: list[TopicKey]) -> Taken:
    try:
        asked = _read(context, request, await lookup.find(context.streams, keys))
    except LakestreamError as error:
        asked = _read(context, request, lookup.FoundTopics(), refusal=code_of(error))
    checked = check_small(_batches(asked), context.streams.runtime.clock.now_ms())
    return await _checked_aside(context, request, asked) if checked is None else _take(context, request, asked, checked)


async def _checked_aside(context: Context, request: Any, asked: Sequence[_Asked]) -> Taken:
    """No later request of the connection is taken in meanwhile: its batches keep their order."""
    check = partial(check_all, _batches(asked), context.streams.runtime.clock.now_ms())
    return _take(context, request, asked, await context.streams.runtime.aside(check))


def _read(context: Context, request: Any, topics: lookup.FoundTopics, refusal: ErrorCode | None = None) -> list[_Asked]:
    if request.acks not in _ACKS:
        refusal = ErrorCode.invalid_required_acks
    elif request.transactional_id is not None:
        refusal = ErrorCode.transactional_id_authorization_failed
    return [
        _read_partition(context, topics, key, data, refusal)
        for topic in request.topic_data
        for key in (lookup.key_of(topic),)
        for data in topic.partition_data
    ]


def _read_partition(
    context: Context, topics: lookup.FoundTopics, key: TopicKey, data: Any, refusal: ErrorCode | None
) -> _Asked:
    topic = topics.get(key)
    partition = lookup.partition_of(topic, data.index)
    if refusal is None:
        if topic is None:
            refusal = topics.refusal(key)
        elif partition is None:
            refusal = ErrorCode.unknown_topic_or_partition
        elif not data.records:
            refusal = ErrorCode.invalid_record
        elif context.version < _ZSTD_VERSION and codec_of(data.records) == _ZSTD:
            refusal = ErrorCode.unsupported_compression_type
        else:
            try:
                rules = batch_rules(topic.configs, context.streams.max_batch_bytes)
            except InvalidSetting as error:
                refusal = code_of(error)
            else:
                return _Asked(key, data.index, partition, ReceivedBatch(data.records, rules), None)
    return _Asked(key, data.index, partition, None, refusal)


def _batches(asked: Sequence[_Asked]) -> list[ReceivedBatch]:
    return [each.batch for each in asked if each.batch is not None]


def _take(context: Context, request: Any, asked: Sequence[_Asked], checked: Sequence[Checked]) -> Taken:
    verdicts = iter(checked)
    taken = [_Taken(each.key, each.number, each.partition, _append(context, each, verdicts)) for each in asked]
    pending = [each.outcome for each in taken if isinstance(each.outcome, asyncio.Future)]
    context.holds.extend(pending)
    if request.acks == 0:
        _close_on_failure(context, taken)
        return None
    if not pending:
        return _response(context, taken)
    return _acknowledged(context, taken, pending, milliseconds(request.timeout))


def _append(context: Context, asked: _Asked, verdicts: Iterator[Checked]) -> _Outcome:
    if asked.refusal is not None:
        return asked.refusal
    assert asked.partition is not None
    assert asked.batch is not None
    verdict = next(verdicts)
    if isinstance(verdict, RequestError):
        return verdict
    return context.streams.append(asked.partition, verdict.run, verdict.batch)


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
    outcome, code, message, log_start = taken.outcome, ErrorCode.none, None, -1
    faults: Sequence[Fields] = ()
    if isinstance(outcome, ErrorCode):
        code = outcome
    elif isinstance(outcome, RequestError):
        code, message = code_of(outcome), str(outcome)
        faults = _record_errors(outcome)
    elif not outcome.done():
        code = ErrorCode.request_timed_out
    else:
        error = outcome.exception()
        if error is None:
            appended = outcome.result()
            return {
                "index": taken.number,
                "base_offset": appended.base_offset,
                "log_append_time": _NO_TIME if appended.append_time_ms is None else appended.append_time_ms,
                "log_start_offset": appended.log_start,
                "record_errors": (),
            }
        assert isinstance(error, LakestreamError)
        assert taken.partition is not None
        code, message = lookup.partition_error(context.streams, taken.partition.topic_id, error), str(error)
        if isinstance(error, UnknownProducer):
            log_start = error.log_start
    return {
        "index": taken.number,
        "error_code": code,
        "base_offset": -1,
        "log_start_offset": log_start,
        "record_errors": faults,
        "error_message": message,
    }


def _record_errors(error: RequestError) -> Sequence[Fields]:
    """A client fails these for good, and the others of the batch as innocent."""
    blamed = error.records if isinstance(error, InvalidRecords) else ()
    return [
        {"batch_index": index, "batch_index_error_message": text if number < _TOLD_FAULTS else None}
        for number, (index, text) in enumerate(blamed)
    ]


def _close_on_failure(context: Context, taken: Sequence[_Taken]) -> None:
    def ended(future: "asyncio.Future[Appended]") -> None:
        error = future.exception()
        if error is not None:
            context.close(f"acks=0 and an append failed: {error}")

    for each in taken:
        if isinstance(each.outcome, asyncio.Future):
            each.outcome.add_done_callback(ended)
        else:
            reason = each.outcome.name if isinstance(each.outcome, ErrorCode) else str(each.outcome)
            context.close(f"acks=0 and {each.key}-{each.number} was refused: {reason}")


API = ordered_api(0, admit, told_from=0)
