"""ElectLeaders, v0–v2.

There are no leaders: any broker serves any partition, so of one that exists no election is ever needed
(ELECTION_NOT_NEEDED). Without a list of partitions the answer has no topics, as all of them are like that.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import Topic

_KINDS: Final = (0, 1)
"""Of the preferred leader, and an unclean one."""


async def handle(context: Context, request: Any) -> Reply:
    try:
        context.streams.cluster.check(context.principal, Operation.ALTER)
    except NotAuthorized as error:
        return _all(request, code_of(error), str(error))
    if getattr(request, "election_type", 0) not in _KINDS:
        return _all(request, ErrorCode.invalid_request, "there is no such kind of election")
    asked = request.topic_partitions or ()
    found = await context.streams.find(context.principal, Operation.DESCRIBE, [each.topic for each in asked])
    return {
        "error_code": ErrorCode.none,
        "replica_election_results": [
            {
                "topic": each.topic,
                "partition_result": [_result(each.topic, found[each.topic], index) for index in each.partitions],
            }
            for each in asked
        ],
    }


def _all(request: Any, code: ErrorCode, message: str) -> Reply:
    """The same for the request and for each partition of it."""
    return {
        "error_code": code,
        "replica_election_results": [
            {
                "topic": each.topic,
                "partition_result": [
                    {"partition_id": index, "error_code": code, "error_message": message} for index in each.partitions
                ],
            }
            for each in request.topic_partitions or ()
        ],
    }


def _result(name: str, topic: object, index: int) -> Fields:
    if isinstance(topic, Topic) and 0 <= index < topic.partitions:
        code, message = ErrorCode.election_not_needed, "any broker serves any partition: there is no leader to elect"
    else:
        code, message = ErrorCode.unknown_topic_or_partition, f"there is no partition {index} of a topic {name}"
    return {"partition_id": index, "error_code": code, "error_message": message}


API = api(43, handle, versions=(0, 2))
