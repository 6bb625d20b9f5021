"""DescribeTransactions, v0.

A transactional id's state, and the partitions of its transaction as long as that is open or being ended: those of
topics that the caller may describe. Any broker tells it.
"""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.transactions import STATE_NAMES
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import transaction_code
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import Topic


async def handle(context: Context, request: Any) -> Reply:
    asked = list(dict.fromkeys(request.transactional_ids))
    return {"transaction_states": await asyncio.gather(*(_state(context, each) for each in asked))}


async def _state(context: Context, transactional_id: str) -> Fields:
    try:
        described = await context.transactions.describe(context.principal, transactional_id)
        if not transactional_id:
            return _unknown(transactional_id, ErrorCode.invalid_request)
        if described is None:
            return _unknown(transactional_id, ErrorCode.transactional_id_not_found)
        state, topics = described
        found = await context.streams.find(context.principal, Operation.DESCRIBE, topics)
    except LakestreamError as error:
        return _unknown(transactional_id, transaction_code(error))
    return {
        "error_code": ErrorCode.none,
        "transactional_id": transactional_id,
        "transaction_state": STATE_NAMES[state.phase],
        "transaction_timeout": state.timeout_ms,
        "transaction_start_time": state.started_ms,
        "producer_id": state.producer_id,
        "producer_epoch": state.epoch,
        "topics": [
            {"topic": topic.name, "partitions": topics[topic.topic_id]}
            for topic in found.values()
            if isinstance(topic, Topic)
        ],
    }


def _unknown(transactional_id: str, code: ErrorCode) -> Fields:
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
