"""SyncGroup, v0–v5.

The leader brings the assignments of its generation; everyone waits for theirs. From v5 on a member may say which
protocol it thinks was chosen: another one is INCONSISTENT_GROUP_PROTOCOL.
"""

from typing import Any

from lakestream.coordination.groups import GroupError, Sync, Synced
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code, group_code


async def handle(context: Context, request: Any) -> Reply:
    sync = Sync(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    synced = Synced(GroupError.INVALID_NAME)
    code = group_code(synced.error)
    if request.group_id:
        try:
            synced = await context.groups.sync(context.principal, request.group_id, sync)
            code = group_code(synced.error)
        except LakestreamError as error:
            code = coordinator_code(error)
    return {
        "error_code": code,
        "assignment": synced.assignment,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
    }


API = api(14, handle, versions=(0, 5))
