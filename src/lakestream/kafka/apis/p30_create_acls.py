"""CreateAcls, v1–v3.

There are no ACLs as long as nobody is asked who they are: SECURITY_DISABLED, as Kafka answers without an authorizer.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import NO_AUTHORIZER, code_of


async def handle(context: Context, request: Any) -> Reply:
    code, message = ErrorCode.security_disabled, NO_AUTHORIZER
    try:
        context.streams.cluster.check(context.principal, Operation.ALTER)
    except NotAuthorized as error:
        code, message = code_of(error), str(error)
    return {"results": [{"error_code": code, "error_message": message} for _ in request.creations]}


API = api(30, handle, versions=(1, 3))
