"""ShareAcknowledge, v1–v2.

What members of share groups say of records that they were given: 0 it has none there, 1 accepted, 2 released, to be
delivered again, 3 rejected; with v2 also 4, the lock is to last longer, if the request says that it renews. All of a
partition count or none, and they are stored before they are answered. A record that is with another member by now, or
done with, is INVALID_RECORD_STATE. Epoch -1 ends the session: what else the member has is free.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.coordination.shares import SharedRecords
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.sharing import ack_fields, acks_of, answer, problem_of, refusal
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields


async def handle(context: Context, request: Any) -> Reply:
    problem = problem_of(request)
    if problem:
        return refusal(ErrorCode.invalid_request, problem)
    try:
        told = await context.shares.acknowledge(
            context.principal,
            request.group_id,
            request.member_id,
            request.share_session_epoch,
            acks_of(request.topics),
            renews=getattr(request, "is_renew_ack", False),
        )
    except LakestreamError as error:
        return refusal(code_of(error), str(error))
    return answer(told, _partition)


def _partition(each: SharedRecords) -> Fields:
    return {
        "partition_index": each.asked[1],
        **ack_fields(each.ack),
        "current_leader": {"leader_id": -1, "leader_epoch": -1},
    }


API = api(79, handle, versions=(1, 2))
