"""ExpireDelegationToken, v1–v2.

Tokens need a client that has said who it is, and none does on this listener: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as
Kafka answers on a plain one.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.kafka.apis.api import Context, Reply, api


async def handle(context: Context, request: Any) -> Reply:
    return {"error_code": ErrorCode.delegation_token_request_not_allowed, "expiry_timestamp": 0}


API = api(40, handle, versions=(1, 2))
