"""LeaveGroup, v0–v5.

Takes members out of a group at once, one in v0–v2, many from v3 on, by member id or by instance id.
Each is answered on its own; the top error is about the coordinator (in v0–v2, about the member).
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code, group_code


async def handle(context: Context, request: Any) -> Reply:
    if not request.group_id:
        return {"error_code": ErrorCode.invalid_group_id, "members": ()}
    members: list[tuple[str, str | None]]
    if context.version >= 3:
        members = [(member.member_id, member.group_instance_id) for member in request.members]
    else:
        members = [(request.member_id, None)]
    try:
        results = [
            group_code(told) for told in await context.groups.leave(context.principal, request.group_id, members)
        ]
    except LakestreamError as error:
        return {"error_code": coordinator_code(error), "members": ()}
    return {
        "error_code": ErrorCode.none if context.version >= 3 else results[0],
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}
            for (member_id, instance_id), code in zip(members, results, strict=True)
        ],
    }


API = api(13, handle, versions=(0, 5))
