"""FindCoordinator, v0–v6.

The broker that coordinates a group: the holder of its lease if it lives, else the rendezvous choice
over the live brokers. Many keys at once from v4 on. Of a transactional id (type 1) the broker that is asked: any may
coordinate it. So may any a share partition (type 2, v6 on: group, topic's id and partition, with colons between); only
brokers may ask for that one. Any other type, and a key that is none, is INVALID_REQUEST.
"""

import re
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.brokers import Broker

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_SHARE_VERSION: Final = 6
_SHARE_KEY: Final = re.compile(r".+:[A-Za-z0-9_-]{22}:\d{1,10}", re.DOTALL)


async def handle(context: Context, request: Any) -> Reply:
    key_type = getattr(request, "key_type", _GROUP)
    if context.version >= 4:
        return {"coordinators": [await _find(context, key, key_type) for key in request.coordinator_keys]}
    return await _find(context, request.key, key_type)


async def _find(context: Context, key: str, key_type: int) -> Fields:
    if key_type == _SHARE and context.version >= _SHARE_VERSION:
        return _find_share(context, key)
    if key_type not in (_GROUP, _TRANSACTION):
        return _nobody(key, ErrorCode.invalid_request, f"{key_type} is not a type of key")
    coordinators = context.transactions if key_type == _TRANSACTION else context.groups
    try:
        return _found(key, await coordinators.find(context.principal, key))
    except LakestreamError as error:
        return _nobody(key, coordinator_code(error), str(error))


def _find_share(context: Context, key: str) -> Fields:
    try:
        broker = context.shares.find(context.principal)
        if not _SHARE_KEY.fullmatch(key):
            return _nobody(key, ErrorCode.invalid_request, "a share partition is group:topicId:partition")
        return _found(key, broker)
    except LakestreamError as error:
        return _nobody(key, coordinator_code(error), str(error))


def _found(key: str, broker: Broker) -> Fields:
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
