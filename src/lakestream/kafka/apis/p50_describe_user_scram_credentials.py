"""DescribeUserScramCredentials, v0.

None are kept as long as nobody is asked who they are: of a user that is asked for, RESOURCE_NOT_FOUND.
"""

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of


async def handle(context: Context, request: Any) -> Reply:
    try:
        context.streams.cluster.check(context.principal, Operation.DESCRIBE)
    except NotAuthorized as error:
        return {"error_code": code_of(error), "error_message": str(error), "results": ()}
    times = Counter(user.name for user in request.users or ())
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "results": [
            {
                "user": name,
                "error_code": ErrorCode.resource_not_found if count == 1 else ErrorCode.duplicate_resource,
                "error_message": f"user {name} has no credential" if count == 1 else f"user {name} is named twice",
                "credential_infos": (),
            }
            for name, count in times.items()
        ],
    }


API = api(50, handle, versions=(0, 0))
