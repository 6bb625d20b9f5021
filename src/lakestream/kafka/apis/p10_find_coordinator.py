"""FindCoordinator, v0–v6.

The broker that coordinates a group: the holder of its lease if it lives, else the rendezvous choice
over the live brokers. Many keys at once from v4 on. Of a transactional id (type 1) the broker that is asked: any may
coordinate it. Share groups (type 2) have no coordinator yet: COORDINATOR_NOT_AVAILABLE; any other type is
INVALID_REQUEST.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code
from lakestream.kafka.wire.writing import Fields

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2


async def handle(context: Context, request: Any) -> Reply:
    key_type = getattr(request, "key_type", _GROUP)
    if context.version >= 4:
        return {"coordinators": [await _find(context, key, key_type) for key in request.coordinator_keys]}
    return await _find(context, request.key, key_type)


async def _find(context: Context, key: str, key_type: int) -> Fields:
    if key_type == _SHARE:
        return _nobody(key, ErrorCode.coordinator_not_available, "share groups are not served yet")
    if key_type not in (_GROUP, _TRANSACTION):
        return _nobody(key, ErrorCode.invalid_request, f"{key_type} is not a type of key")
    coordinators = context.transactions if key_type == _TRANSACTION else context.groups
    try:
        broker = await coordinators.find(context.principal, key)
    except LakestreamError as error:
        return _nobody(key, coordinator_code(error), str(error))
    return {
        "key": key,
        "node_id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "error_message": None,
    }


def _nobody(key: str, code: ErrorCode, message: str) -> Fields:
    return {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}


API = api(10, handle, versions=(0, 6))
