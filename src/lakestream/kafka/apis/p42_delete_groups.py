"""DeleteGroups, v0–v2.

Forgets groups that are coordinated here, with their offsets. NON_EMPTY_GROUP while a group has members,
GROUP_ID_NOT_FOUND if nobody ever used it.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code, group_code


async def handle(context: Context, request: Any) -> Reply:
    return {
        "results": [
            {"group_id": group, "error_code": await _delete(context, group)}
            for group in dict.fromkeys(request.groups_names)
        ]
    }


async def _delete(context: Context, group: str) -> ErrorCode:
    try:
        return group_code(await context.groups.delete(context.principal, group))
    except LakestreamError as error:
        return coordinator_code(error)


API = api(42, handle, versions=(0, 2))
