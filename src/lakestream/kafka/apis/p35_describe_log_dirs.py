"""DescribeLogDirs, v1–v5.

One directory: the bucket. A partition is told by one broker alone, the one that clients without a zone use, so that a
tool that asks all brokers and adds up counts each once. Its size is what its tail and its share of the table's files
take. How much room there is nobody knows: -1.
"""

from typing import Any, Final

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of

_TELLS_ERRORS: Final = 3


async def handle(context: Context, request: Any) -> Reply:
    wanted = None
    if request.topics is not None:
        wanted = {topic.topic: frozenset(topic.partitions) for topic in request.topics}
    cluster = context.streams.cluster
    try:
        brokers = await context.streams.describe_cluster(context.principal)
        sizes = await cluster.partition_sizes(
            context.principal,
            wanted,
            lambda topic, index: context.door.descriptions.leader(topic, index, brokers) == cluster.broker_id,
        )
    except LakestreamError as error:
        # Before v3 only a directory can tell of an error.
        refused = {"error_code": code_of(error), "log_dir": "", "topics": ()}
        return {"error_code": code_of(error), "results": [refused] if context.version < _TELLS_ERRORS else ()}
    return {
        "results": [
            {
                "log_dir": cluster.bucket_url,
                "topics": [
                    {
                        "name": name,
                        "partitions": [
                            {"partition_index": index, "partition_size": size, "offset_lag": 0, "is_future_key": False}
                            for index, size in partitions.items()
                        ],
                    }
                    for name, partitions in sizes.items()
                ],
            }
        ]
    }


API = api(35, handle, versions=(1, 5))
