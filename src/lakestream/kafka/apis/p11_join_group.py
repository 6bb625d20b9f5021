"""JoinGroup, v0–v9.

Joins a classic consumer group and waits for its next generation. From v4 on a new member is first told its id
(MEMBER_ID_REQUIRED) and joins again with it; static members (v5+) keep their place by their instance id. The leader
hears of all members and assigns; v9 tells a static leader that came back to skip it. v0 has no rebalance time-out of
its own: the session's counts.
"""

from typing import Any

from lakestream.coordination.groups import GroupError, Join, Joined, Protocol
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code, group_code
from lakestream.kafka.wire.codec import milliseconds


async def handle(context: Context, request: Any) -> Reply:
    session_timeout_ms = milliseconds(request.session_timeout)
    join = Join(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=context.client_id,
        client_host=context.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout) if context.version >= 1 else session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[Protocol(protocol.name, protocol.metadata) for protocol in request.protocols],
        id_required=context.version >= 4,
        skips_assignment=context.version >= 9,
    )
    try:
        joined = await context.groups.join(context.principal, request.group_id, join)
        code = group_code(joined.error)
    except LakestreamError as error:
        joined, code = Joined(GroupError.NOT_COORDINATOR, request.member_id), coordinator_code(error)
    return {
        "error_code": code,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol if context.version >= 7 else joined.protocol or "",
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in joined.members
        ],
    }


API = api(11, handle, versions=(0, 9))
