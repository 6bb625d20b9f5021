"""AlterReplicaLogDirs, v1–v2.

Brokers have no directories to move a partition between: LOG_DIR_NOT_FOUND, as Kafka says of one that it does not know.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of


async def handle(context: Context, request: Any) -> Reply:
    code = ErrorCode.log_dir_not_found
    try:
        context.streams.cluster.check(context.principal, Operation.ALTER)
    except NotAuthorized as error:
        code = code_of(error)
    asked: dict[str, list[int]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            asked.setdefault(topic.name, []).extend(topic.partitions)
    return {
        "results": [
            {
                "topic_name": name,
                "partitions": [{"partition_index": index, "error_code": code} for index in dict.fromkeys(partitions)],
            }
            for name, partitions in asked.items()
            if partitions
        ]
    }


API = api(34, handle, versions=(1, 2))
