"""ListPartitionReassignments, v0.

None is ever under way: they are done as soon as they are asked for.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of


async def handle(context: Context, request: Any) -> Reply:
    code, message = ErrorCode.none, None
    try:
        context.streams.cluster.check(context.principal, Operation.DESCRIBE)
    except NotAuthorized as error:
        code, message = code_of(error), str(error)
    return {"error_code": code, "error_message": message, "topics": ()}


API = api(46, handle, versions=(0, 0))
