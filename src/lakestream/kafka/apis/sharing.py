"""What requests of share groups have in common: acknowledgements, sessions and their codes."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.coordination.shares import Ack, AckError, AckOutcome, Asked, SessionError, SharedRecords, ShareFetched
from lakestream.errors import LakestreamError
from lakestream.kafka.errors import fetch_code
from lakestream.kafka.wire.writing import Fields

_SESSION_CODES: Final = {
    SessionError.NOT_FOUND: ErrorCode.share_session_not_found,
    SessionError.INVALID_EPOCH: ErrorCode.invalid_share_session_epoch,
    SessionError.LIMIT_REACHED: ErrorCode.share_session_limit_reached,
    SessionError.INVALID_REQUEST: ErrorCode.invalid_request,
}
_ACK_CODES: Final = {
    AckError.INVALID_REQUEST: ErrorCode.invalid_request,
    AckError.INVALID_STATE: ErrorCode.invalid_record_state,
}
_LONGEST_ID: Final = 36


def acks_of(topics: Iterable[Any]) -> dict[Asked, list[Ack]]:
    """Of partitions that have any."""
    return {
        (topic.topic_id, partition.partition_index): [
            Ack(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in partition.acknowledgement_batches
        ]
        for topic in topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }


def problem_of(request: Any) -> str:
    """Why nobody can be meant by that; empty: somebody can."""
    if not request.group_id:
        return "a group has a name"
    if not request.member_id or len(request.member_id) > _LONGEST_ID:
        return f"a member has an id of at most {_LONGEST_ID} characters"
    return ""


def refusal(code: ErrorCode, message: str) -> Fields:
    return {"error_code": code, "error_message": message, "acquisition_lock_timeout": 0, **_NOTHING}


_NOTHING: Final[Fields] = {"responses": (), "node_endpoints": ()}


def answer(fetched: ShareFetched, partition: Callable[[SharedRecords], Fields]) -> Fields:
    if fetched.error is not None:
        code = _SESSION_CODES[fetched.error]
        return refusal(code, fetched.message or code.name)
    ordered: Sequence[SharedRecords] = sorted(fetched.partitions, key=_topic)
    return {
        "acquisition_lock_timeout": fetched.lock_ms,
        **_NOTHING,
        "responses": [
            {"topic_id": of_topic[0].asked[0], "partitions": [partition(each) for each in of_topic]}
            for of_topic in (list(group) for _, group in groupby(ordered, key=_topic))
        ],
    }


def _topic(each: SharedRecords) -> str:
    return str(each.asked[0])


def ack_fields(outcome: AckOutcome | None, prefix: str = "") -> Fields:
    """The code and the sentence of a partition's acknowledgements."""
    if outcome is None or outcome.error is None:
        return {f"{prefix}error_code": ErrorCode.none, f"{prefix}error_message": None}
    code = fetch_code(outcome.error) if isinstance(outcome.error, LakestreamError) else _ACK_CODES[outcome.error]
    return {f"{prefix}error_code": code, f"{prefix}error_message": outcome.message or None}
