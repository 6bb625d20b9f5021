"""DescribeTransactions, v0.

There are none yet: of any transactional id, TRANSACTIONAL_ID_NOT_FOUND.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields


async def handle(context: Context, request: Any) -> Reply:
    return {"transaction_states": [_state(context, each) for each in dict.fromkeys(request.transactional_ids)]}


def _state(context: Context, transactional_id: str) -> Fields:
    code = ErrorCode.transactional_id_not_found if transactional_id else ErrorCode.invalid_request
    try:
        context.streams.cluster.check_transactional_id(context.principal, transactional_id)
    except LakestreamError as error:
        code = code_of(error)
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": (),
    }


API = api(65, handle, versions=(0, 0))
