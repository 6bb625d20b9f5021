"""AddOffsetsToTxn, v0–v4.

A group joins the producer's transaction: TxnOffsetCommit may follow. Clients of transactions' version 2 do not ask.
"""

from typing import Any, Final

from lakestream.coordination.transactions import Producer
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import transaction_code

_KNOWS_FENCED: Final = 2


async def handle(context: Context, request: Any) -> Reply:
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        await context.transactions.add_group(context.principal, request.transactional_id, producer, request.group_id)
    except LakestreamError as error:
        return {"error_code": transaction_code(error, knows_fenced=context.version >= _KNOWS_FENCED)}
    return {}


API = api(25, handle, versions=(0, 4))
