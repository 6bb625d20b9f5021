"""InitProducerId, v0–v5. v6 is for two-phase commit, which no released Kafka serves.

Without a transactional id: a producer id that nobody else has, with epoch 0; its sequences are checked in the commit of
each append. A producer that sends its old id and epoch gets a fresh id: nothing ties an idempotent producer to the old
one.
With a transactional id: its producer id, in the next epoch. Whoever wrote under it before is fenced, and a transaction
that was open is aborted first. A producer that sends its id and epoch (v3+) is fenced instead if they are not the
newest; asked again, it hears the same. When the epochs of a producer id are used up another id follows.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.coordination.transactions import Producer
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code, transaction_code
from lakestream.kafka.wire.codec import milliseconds
from lakestream.kafka.wire.writing import Fields

_KNOWS_FENCED: Final = 4
_NONE: Final = -1


async def handle(context: Context, request: Any) -> Reply:
    known = Producer(getattr(request, "producer_id", _NONE), getattr(request, "producer_epoch", _NONE))
    if (known.producer_id == _NONE) != (known.epoch == _NONE):
        return _refused(ErrorCode.invalid_request)
    try:
        if request.transactional_id is None:
            producer = Producer(*await context.streams.new_producer(context.principal))
        else:
            producer = await context.transactions.begin(
                context.principal,
                request.transactional_id,
                milliseconds(request.transaction_timeout),
                None if known.producer_id == _NONE else known,
            )
    except LakestreamError as error:
        if request.transactional_id is None:
            return _refused(coordinator_code(error))
        return _refused(transaction_code(error, knows_fenced=context.version >= _KNOWS_FENCED))
    return {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}


def _refused(code: ErrorCode) -> Fields:
    return {"error_code": code, "producer_epoch": _NONE}


API = api(22, handle, versions=(0, 5))
