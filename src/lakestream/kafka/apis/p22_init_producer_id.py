"""InitProducerId, v0–v5. v6 is for two-phase commit, which no released Kafka serves.

Gives an idempotent producer an id that nobody else has, with epoch 0; its sequences are checked in the commit of
each append. A producer that sends its old id and epoch gets a fresh id: nothing ties an
idempotent producer to the old one. A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED until
transactions exist, as FindCoordinator does.
"""

import logging
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import NO_TRANSACTIONS, coordinator_code

log = logging.getLogger(__name__)


async def handle(context: Context, request: Any) -> Reply:
    if request.transactional_id is not None:
        log.warning("transactional id %r refused: %s", request.transactional_id, NO_TRANSACTIONS)
        return {"error_code": ErrorCode.transactional_id_authorization_failed, "producer_epoch": -1}
    try:
        producer_id, epoch = await context.streams.new_producer(context.principal)
    except LakestreamError as error:
        return {"error_code": coordinator_code(error), "producer_epoch": -1}
    return {"producer_id": producer_id, "producer_epoch": epoch}


API = api(22, handle, versions=(0, 5))
