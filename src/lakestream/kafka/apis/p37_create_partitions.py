"""CreatePartitions, v0–v3.

The answer comes when the new partitions can be used, at every broker. The count is that of all partitions and only ever
grows. A manual assignment is checked as Kafka does and counts no further: any broker serves any partition.
A topic that is named twice is INVALID_REQUEST. validate_only checks everything and changes nothing.
"""

import asyncio
from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import InvalidPartitions, LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields


async def handle(context: Context, request: Any) -> Reply:
    times = Counter(topic.name for topic in request.topics)
    asked = {topic.name: topic for topic in request.topics}
    return {
        "results": await asyncio.gather(
            *(
                _grow(context, topic, repeated=times[name] > 1, validate_only=request.validate_only)
                for name, topic in asked.items()
            )
        )
    }


async def _grow(context: Context, asked: Any, *, repeated: bool, validate_only: bool) -> Fields:
    if repeated:
        return _result(asked.name, ErrorCode.invalid_request, "the topic is named twice")
    assignments = None if asked.assignments is None else [each.broker_ids for each in asked.assignments]
    most = context.settings.max_partitions
    try:
        if asked.count > most:
            raise InvalidPartitions(f"{asked.name} cannot have {asked.count} partitions: choose up to {most}")
        await context.streams.topics.grow(
            context.principal, asked.name, asked.count, assignments, dry_run=validate_only
        )
    except LakestreamError as error:
        return _result(asked.name, code_of(error), str(error))
    return _result(asked.name, ErrorCode.none, None)


def _result(name: str, code: ErrorCode, message: str | None) -> Fields:
    return {"name": name, "error_code": code, "error_message": message}


API = api(37, handle, versions=(0, 3))
