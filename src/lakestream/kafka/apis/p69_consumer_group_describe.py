"""ConsumerGroupDescribe, v0–v1.

Groups of the newer protocol do not exist yet: of any other, GROUP_ID_NOT_FOUND, upon which clients ask DescribeGroups.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code
from lakestream.kafka.wire.writing import Fields


async def handle(context: Context, request: Any) -> Reply:
    return {"groups": [await _described(context, group) for group in dict.fromkeys(request.group_ids)]}


async def _described(context: Context, group: str) -> Fields:
    code, message = ErrorCode.group_id_not_found, f"group {group} is none of the newer protocol"
    if not group:
        code, message = ErrorCode.invalid_group_id, "a group has a name"
    try:
        await context.groups.describe(context.principal, group)
    except LakestreamError as error:
        code, message = coordinator_code(error), str(error)
    return {
        "error_code": code,
        "error_message": message,
        "group_id": group,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }


API = api(69, handle, versions=(0, 1))
