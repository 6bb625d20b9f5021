"""SyncGroup, v0–v5.

The leader brings the assignments of its generation; everyone waits for theirs. From v5 on a member may say which
protocol it thinks was chosen: another one is INCONSISTENT_GROUP_PROTOCOL.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code
from lakestream.kafka.groups import Sync, Synced


async def handle(context: Context, request: Any) -> Reply:
    sync = Sync(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    if not request.group_id:
        synced = Synced(ErrorCode.invalid_group_id)
    else:
        try:
            synced = await context.groups.sync(request.group_id, sync)
        except LakestreamError as error:
            synced = Synced(coordinator_code(error))
    return {
        "error_code": synced.error,
        "assignment": synced.assignment,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
    }


API = api(14, handle)
