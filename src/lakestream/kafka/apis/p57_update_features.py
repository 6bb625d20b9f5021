"""UpdateFeatures, v0–v2.

Features are at their highest level, always: every format here has its own version. Whatever is to be updated
is INVALID_UPDATE_VERSION, as Kafka says of a feature that it does not have.
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
        context.streams.cluster.check(context.principal, Operation.ALTER)
    except NotAuthorized as error:
        code, message = code_of(error), str(error)
    else:
        if request.feature_updates:
            code = ErrorCode.invalid_update_version
            message = f"the level of feature {request.feature_updates[0].feature} cannot be changed"
    return {"error_code": code, "error_message": message, "results": ()}


API = api(57, handle, versions=(0, 2))
