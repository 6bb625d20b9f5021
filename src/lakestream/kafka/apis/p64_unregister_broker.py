"""UnregisterBroker, v0.

A broker's registration lapses with the broker: of one that is gone, BROKER_ID_NOT_REGISTERED. One that lives has to be
stopped (INVALID_REQUEST).
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of


async def handle(context: Context, request: Any) -> Reply:
    try:
        context.streams.cluster.check(context.principal, Operation.ALTER)
        live = {broker.broker_id for broker in await context.streams.brokers(context.principal)}
    except LakestreamError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    if request.broker_id in live:
        message = f"broker {request.broker_id} lives: stop it, and it is not registered any more"
        return {"error_code": ErrorCode.invalid_request, "error_message": message}
    message = f"broker {request.broker_id} is not registered"
    return {"error_code": ErrorCode.broker_id_not_registered, "error_message": message}


API = api(64, handle, versions=(0, 0))
