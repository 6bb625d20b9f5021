"""AlterUserScramCredentials, v0.

No credential would ever be asked for, so none is taken: SECURITY_DISABLED. One that is to be deleted is not there
(RESOURCE_NOT_FOUND).
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of


async def handle(context: Context, request: Any) -> Reply:
    denied: tuple[ErrorCode, str] | None = None
    try:
        context.streams.cluster.check(context.principal, Operation.ALTER)
    except NotAuthorized as error:
        denied = code_of(error), str(error)
    missing = ErrorCode.resource_not_found, "the user has no such credential"
    useless = ErrorCode.security_disabled, "clients are not asked who they are, so no credential is kept"
    results = {each.name: denied or missing for each in request.deletions}
    results |= {each.name: denied or useless for each in request.upsertions}
    return {
        "results": [
            {"user": user, "error_code": code, "error_message": message} for user, (code, message) in results.items()
        ]
    }


API = api(51, handle, versions=(0, 0))
