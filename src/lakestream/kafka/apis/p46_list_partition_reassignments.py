"""ListPartitionReassignments, v0.

None is ever under way: they are done as soon as they are asked for.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.authorized import denied_or


async def handle(context: Context, request: Any) -> Reply:
    code, message = denied_or(context, Operation.DESCRIBE, ErrorCode.none, None)
    return {"error_code": code, "error_message": message, "topics": ()}


API = api(46, handle, versions=(0, 0))
