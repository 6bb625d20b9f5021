"""DeleteShareGroupOffsets, v0.

A share group forgets how far it is in these topics, and begins anew there. NON_EMPTY_GROUP while it has members,
GROUP_ID_NOT_FOUND of any other kind of group. A topic that is not there, or in which the group has not begun, is told
so, the others are forgotten.
"""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.groups import GroupError
from lakestream.errors import LakestreamError, UnknownStream
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of, coordinator_code, group_code
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import Topic


async def handle(context: Context, request: Any) -> Reply:
    group = request.group_id
    try:
        names = list(dict.fromkeys(topic.topic_name for topic in request.topics))
        found = await context.streams.find(context.principal, Operation.READ, names)
        topic_ids = {topic.topic_id for topic in found.values() if isinstance(topic, Topic)}
        error, gone = await context.shares.offsets.delete(context.principal, group, topic_ids)
    except LakestreamError as failure:
        return _refused(coordinator_code(failure), str(failure))
    if error is not GroupError.NONE:
        return _refused(group_code(error), f"group {group} is no share group without members")
    return {"error_message": None, "responses": [_topic(name, found[name], gone) for name in names]}


def _topic(name: str, topic: Topic | LakestreamError, gone: Collection[UUID]) -> Fields:
    if isinstance(topic, Topic) and topic.topic_id not in gone:
        topic = UnknownStream(f"the group has not begun with topic {name}")
    if isinstance(topic, Topic):
        return {"topic_name": name, "topic_id": topic.topic_id, "error_message": None}
    return {"topic_name": name, "topic_id": None, "error_code": code_of(topic), "error_message": str(topic)}


def _refused(code: ErrorCode, message: str) -> Fields:
    return {"error_code": code, "error_message": message, "responses": ()}


API = api(92, handle, versions=(0, 0))
