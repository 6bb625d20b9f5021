"""SaslAuthenticate, v0–v2.

This listener has no SASL: ILLEGAL_SASL_STATE, as Kafka answers on a plain one.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.kafka.apis.api import Context, Reply, api

_NO_SASL: Final = "this listener takes every client as it is, without SASL: connect with security.protocol=PLAINTEXT"


async def handle(context: Context, request: Any) -> Reply:
    return {
        "error_code": ErrorCode.illegal_sasl_state,
        "error_message": _NO_SASL,
        "auth_bytes": b"",
        "session_lifetime": 0,
    }


API = api(36, handle, versions=(0, 2))
