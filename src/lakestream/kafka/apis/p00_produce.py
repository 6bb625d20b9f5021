"""Produce, v3–v13, announced as v0–v13.

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
A broker that is being stopped takes no more in, and answers NOT_LEADER_OR_FOLLOWER: clients go on elsewhere, with the
same sequence numbers. What acks=0 sends is taken, because nobody would send it again.
Batches of a transaction need the request's transactional id, else all of it is TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
as is every request with one where no transactions are served. From v12 on they enlist their partition by themselves;
before, AddPartitionsToTxn has to have done so: INVALID_TXN_STATE up to v10, TRANSACTION_ABORTABLE in v11. What cannot
be verified now is NOT_ENOUGH_REPLICAS, from v12 on CONCURRENT_TRANSACTIONS if that is why.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from lakestream.errors import (
    ConcurrentTransactions,
    InvalidRecords,
    LakestreamError,
    TransactionAbortable,
    UnknownProducer,
)
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, Taken, ordered_api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.codec import milliseconds
from lakestream.kafka.wire.writing import Fields
from lakestream.objects import Buffer
from lakestream.stream import Appended, AppendOutcome, InTransaction, ProducedBatch, TopicKey
from lakestream.stream.appending.checking import codec_of, is_transactional

_ACKS: Final = (-1, 0, 1)
_ZSTD: Final = 4
_ZSTD_VERSION: Final = 7
_ABORTABLE_VERSION: Final = 11
_IMPLICIT_VERSION: Final = 12
_NO_TIME: Final = -1
_TOLD_FAULTS: Final = 100
"""Records whose faults are put in words; the others are named by their places."""

_Outcome = ErrorCode | AppendOutcome


class _PartitionOutcome(NamedTuple):
    """One partition of the request: refused, or under way."""

    key: TopicKey
    number: int
    outcome: _Outcome


class _PartitionProduce(NamedTuple):
    """One partition of the request, as it names it. `refusal`: what is wrong with it at first sight."""

    key: TopicKey
    number: int
    run: Buffer
    refusal: ErrorCode | None


def admit(context: Context, request: Any) -> Taken | Coroutine[Any, Any, Taken]:
    asked = _read(context, request)
    size_bytes = sum(len(each.run) for each in asked if each.refusal is None)
    context.throttle(context.streams.cluster.produced(context.client_id, size_bytes))
    name = request.transactional_id
    transaction = None if name is None else InTransaction(name, implicit=context.version >= _IMPLICIT_VERSION)
    batches = [
        ProducedBatch(
            each.key, each.number, each.run, transaction if transaction and is_transactional(each.run) else None
        )
        for each in asked
        if each.refusal is None
    ]
    outcomes = context.streams.append(context.principal, batches)
    if isinstance(outcomes, Coroutine):
        return _taken_later(context, request, asked, outcomes)
    return _take(context, request, asked, outcomes)


async def _taken_later(
    context: Context,
    request: Any,
    asked: Sequence[_PartitionProduce],
    outcomes: Coroutine[Any, Any, Sequence[AppendOutcome]],
) -> Taken:
    """No later request of the connection is taken in meanwhile: its batches keep their order."""
    return _take(context, request, asked, await outcomes)


def _read(context: Context, request: Any) -> list[_PartitionProduce]:
    refusal = None
    if request.acks not in _ACKS:
        refusal = ErrorCode.invalid_required_acks
    elif not _has_transactional_id(context, request):
        refusal = ErrorCode.transactional_id_authorization_failed
    elif context.door.is_withdrawn and request.acks != 0:
        refusal = ErrorCode.not_leader_or_follower
    return [
        _PartitionProduce(key, data.index, data.records, refusal or _refusal(context, data.records))
        for topic in request.topic_data
        for key in (lookup.key_of(topic),)
        for data in topic.partition_data
    ]


def _has_transactional_id(context: Context, request: Any) -> bool:
    """Whether it has what it needs for its batches; true of a request without a transaction."""
    if request.transactional_id is not None:
        return context.streams.serves_transactions
    runs = (data.records for topic in request.topic_data for data in topic.partition_data)
    return not any(is_transactional(run) for run in runs if run)


def _refusal(context: Context, records: Buffer | None) -> ErrorCode | None:
    if not records:
        return ErrorCode.invalid_record
    if context.version < _ZSTD_VERSION and codec_of(records) == _ZSTD:
        return ErrorCode.unsupported_compression_type
    return None


def _take(
    context: Context, request: Any, asked: Sequence[_PartitionProduce], outcomes: Sequence[AppendOutcome]
) -> Taken:
    told = iter(outcomes)
    taken = [_PartitionOutcome(each.key, each.number, each.refusal or next(told)) for each in asked]
    pending = [each.outcome for each in taken if isinstance(each.outcome, asyncio.Future)]
    context.holds.extend(pending)
    if request.acks == 0:
        _close_on_failure(context, taken)
        return None
    if not pending:
        return _response(taken, context.version)
    return _acknowledged(taken, pending, milliseconds(request.timeout), context.version)


def _acknowledged(
    taken: Sequence[_PartitionOutcome], pending: Sequence["asyncio.Future[Appended]"], timeout_ms: int, version: int
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
            reply.set_result(_response(taken, version))

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


def _response(taken: Sequence[_PartitionOutcome], version: int) -> Fields:
    topics: dict[TopicKey, list[Fields]] = {}
    for each in taken:
        topics.setdefault(each.key, []).append(_partition_fields(each, version))
    return {"responses": [{**lookup.named(key), "partition_responses": parts} for key, parts in topics.items()]}


def _code(error: LakestreamError, version: int) -> ErrorCode:
    """Older clients are told what they know."""
    if isinstance(error, ConcurrentTransactions) and version < _IMPLICIT_VERSION:
        return ErrorCode.not_enough_replicas
    if isinstance(error, TransactionAbortable) and version < _ABORTABLE_VERSION:
        return ErrorCode.invalid_txn_state
    return code_of(error)


def _partition_fields(taken: _PartitionOutcome, version: int) -> Fields:
    outcome, code, message, log_start = taken.outcome, ErrorCode.none, None, -1
    faults: Sequence[Fields] = ()
    if isinstance(outcome, ErrorCode):
        code = outcome
    elif isinstance(outcome, LakestreamError):
        code, message = _code(outcome, version), str(outcome)
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
        code, message = _code(error, version), str(error)
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


def _record_errors(error: LakestreamError) -> Sequence[Fields]:
    """A client fails these for good, and the others of the batch as innocent."""
    blamed = error.records if isinstance(error, InvalidRecords) else ()
    return [
        {"batch_index": index, "batch_index_error_message": text if number < _TOLD_FAULTS else None}
        for number, (index, text) in enumerate(blamed)
    ]


def _close_on_failure(context: Context, taken: Sequence[_PartitionOutcome]) -> None:
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


API = ordered_api(0, admit, versions=(3, 13), announced_from=0)
