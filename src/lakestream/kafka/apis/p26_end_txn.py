"""EndTxn, v0–v5.

Commits or aborts the producer's transaction. Answered when its markers are in every partition and its offsets in every
group, or once it is decided if that takes longer. v5 is of transactions' version 2: the producer goes on in the next
epoch, which the answer tells; the same request again hears the same.
"""

from typing import Any, Final

from lakestream.coordination.transactions import Producer
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import transaction_code

_KNOWS_FENCED: Final = 2
_BUMPS: Final = 5


async def handle(context: Context, request: Any) -> Reply:
    try:
        producer = await context.transactions.end(
            context.principal,
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            committed=request.committed,
            bumps=context.version >= _BUMPS,
        )
    except LakestreamError as error:
        return {"error_code": transaction_code(error, knows_fenced=context.version >= _KNOWS_FENCED)}
    return {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}


API = api(26, handle, versions=(0, 5))
