"""DeleteAcls, v1–v3.

There are no ACLs as long as nobody is asked who they are: SECURITY_DISABLED, as Kafka answers without an authorizer.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.authorized import denied_or
from lakestream.kafka.errors import NO_AUTHORIZER


async def handle(context: Context, request: Any) -> Reply:
    code, message = denied_or(context, Operation.ALTER, ErrorCode.security_disabled, NO_AUTHORIZER)
    return {
        "filter_results": [{"error_code": code, "error_message": message, "matching_acls": ()} for _ in request.filters]
    }


API = api(31, handle, versions=(1, 3))
