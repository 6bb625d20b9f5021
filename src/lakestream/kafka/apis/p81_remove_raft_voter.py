"""RemoveRaftVoter, v0.

There is no quorum whose voters could change: UNSUPPORTED_VERSION, as Kafka answers where voters are settled.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.authorized import denied_or
from lakestream.kafka.errors import NO_QUORUM


async def handle(context: Context, request: Any) -> Reply:
    code, message = denied_or(context, Operation.ALTER, ErrorCode.unsupported_version, NO_QUORUM)
    return {"error_code": code, "error_message": message}


API = api(81, handle, versions=(0, 0))
