"""Heartbeat, v0–v4.

A member's sign of life. REBALANCE_IN_PROGRESS asks it to join again.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code, group_code


async def handle(context: Context, request: Any) -> Reply:
    if not request.group_id:
        return {"error_code": ErrorCode.invalid_group_id}
    try:
        told = await context.groups.heartbeat(
            context.principal,
            request.group_id,
            request.member_id,
            getattr(request, "group_instance_id", None),
            request.generation_id,
        )
        code = group_code(told)
    except LakestreamError as error:
        code = coordinator_code(error)
    return {"error_code": code}


API = api(12, handle, versions=(0, 4))
