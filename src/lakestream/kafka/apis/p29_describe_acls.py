"""DescribeAcls, v1–v3.

There are no ACLs as long as nobody is asked who they are: SECURITY_DISABLED, as Kafka answers without an authorizer.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import NO_AUTHORIZER, code_of


async def handle(context: Context, request: Any) -> Reply:
    try:
        context.streams.cluster.check(context.principal, Operation.DESCRIBE)
    except NotAuthorized as error:
        return {"error_code": code_of(error), "error_message": str(error), "resources": ()}
    return {"error_code": ErrorCode.security_disabled, "error_message": NO_AUTHORIZER, "resources": ()}


API = api(29, handle, versions=(1, 3))
