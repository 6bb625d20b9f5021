"""SaslHandshake, v0–v1.

This listener has no SASL: ILLEGAL_SASL_STATE, as Kafka answers on a plain one.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.kafka.apis.api import Context, Reply, api


async def handle(context: Context, request: Any) -> Reply:
    return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}


API = api(17, handle, versions=(0, 1))
