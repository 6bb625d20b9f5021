"""DeleteTopics, v1–v6.

After the answer nobody can append to or read the topic; its table stays, detached. By name, from v6 on
also by id. Both at once, or neither, is INVALID_REQUEST; so is a topic that is named twice.
"""

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError, UnknownStream
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields


async def handle(context: Context, request: Any) -> Reply:
    asked: list[tuple[str | None, UUID | None]]
    if context.version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, None) for name in request.topic_names]
    results = [_delete(context, *each, repeated=times > 1) for each, times in Counter(asked).items()]
    return {"responses": await asyncio.gather(*results)}


async def _delete(context: Context, name: str | None, topic_id: UUID | None, *, repeated: bool) -> Fields:
    key = name if name is not None else topic_id
    if repeated or key is None or (name is not None and topic_id is not None):
        return _result(name, topic_id, ErrorCode.invalid_request, "name each topic once, by its name or by its id")
    try:
        deleted = await context.streams.topics.delete(context.principal, key)
    except UnknownStream as error:
        code = ErrorCode.unknown_topic_or_partition if topic_id is None else ErrorCode.unknown_topic_id
        return _result(name, topic_id, code, str(error))
    except LakestreamError as error:
        return _result(name, topic_id, code_of(error), str(error))
    return _result(deleted.name, deleted.topic_id, ErrorCode.none, None)


def _result(name: str | None, topic_id: UUID | None, code: ErrorCode, message: str | None) -> Fields:
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}


API = api(20, handle, versions=(1, 6))
