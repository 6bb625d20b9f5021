"""RemoveRaftVoter, v0.

There is no quorum whose voters could change: UNSUPPORTED_VERSION, as Kafka answers where voters are settled.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of

_NO_QUORUM: Final = "brokers share one metadata store: there is no quorum to change"


async def handle(context: Context, request: Any) -> Reply:
    code, message = ErrorCode.unsupported_version, _NO_QUORUM
    try:
        context.streams.cluster.check(context.principal, Operation.ALTER)
    except NotAuthorized as error:
        code, message = code_of(error), str(error)
    return {"error_code": code, "error_message": message}


API = api(81, handle, versions=(0, 0))
