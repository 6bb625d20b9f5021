"""ShareFetch, v1–v2.

Gives a member of a share group records for itself for a while, and takes its acknowledgements of others. Share sessions
say what is asked for: epoch 0 begins one, -1 ends it, any other is one more than the last. An answer has whole batches
and says which of their records the member was given; errors are per partition, and any error or acknowledgement answers
at once. Acknowledgements are stored before they are answered. With v2 a member may want no more records than it says,
and renew the locks of what it has, for which a request asks for nothing else. No broker leads a partition, so none is
named. A broker that is being stopped answers NOT_LEADER_OR_FOLLOWER for records, and still takes acknowledgements.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.coordination.shares import SharedRecords, ShareFetchRequest
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.sharing import ack_fields, acks_of, answer, problem_of, refusal
from lakestream.kafka.errors import code_of, fetch_code
from lakestream.kafka.wire.codec import milliseconds
from lakestream.kafka.wire.writing import Fields, RecordParts

_EXACT: Final = 1
_NOWHERE: Final = {"leader_id": -1, "leader_epoch": -1}


async def handle(context: Context, request: Any) -> Reply:
    problem = problem_of(request) or _contradiction(request)
    if problem:
        return refusal(ErrorCode.invalid_request, problem)
    settings, answers = context.settings, context.answers
    wait_ms = min(max(milliseconds(request.max_wait), 0), settings.max_fetch_wait_ms)
    most_bytes = min(max(request.max_bytes, 0), settings.max_fetch_bytes)
    reading, size_bytes = await answers.allow(most_bytes, max(request.min_bytes, 0), waits=wait_ms > 0), 0
    try:
        fetched = await context.shares.fetch(
            context.principal,
            answers,
            ShareFetchRequest(
                request.group_id,
                request.member_id,
                request.share_session_epoch,
                [(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions],
                [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions],
                acks_of(request.topics),
                max_wait_ms=wait_ms,
                max_bytes=reading.max_bytes,
                max_records=request.max_records,
                is_exact=getattr(request, "share_acquire_mode", 0) == _EXACT,
                renews=getattr(request, "is_renew_ack", False),
                is_turned_away=context.door.is_withdrawn,
            ),
        )
        size_bytes = sum(len(part) for each in fetched.partitions for part in each.parts)
    except LakestreamError as error:
        return refusal(code_of(error), str(error))
    finally:
        reading.read(size_bytes)
    context.throttle(context.streams.cluster.consumed(context.client_id, size_bytes))
    return answer(fetched, _partition)


def _contradiction(request: Any) -> str:
    """Who renews locks asks for no records."""
    asks = milliseconds(request.max_wait) or request.min_bytes or request.max_bytes or request.max_records
    return "a request that renews locks asks for no records" if getattr(request, "is_renew_ack", False) and asks else ""


def _partition(each: SharedRecords) -> Fields:
    return {
        "partition_index": each.asked[1],
        "error_code": ErrorCode.none if each.error is None else fetch_code(each.error),
        "error_message": None if each.error is None else str(each.error),
        **ack_fields(each.ack, "acknowledge_"),
        "current_leader": _NOWHERE,
        "records": RecordParts(each.parts),
        "acquired_records": [
            {"first_offset": first, "last_offset": end - 1, "delivery_count": deliveries}
            for first, end, deliveries in each.acquired
        ],
    }


API = api(78, handle, versions=(1, 2), cancellable=True)
