"""DescribeQuorum, v0–v2.

There is no quorum: the metadata store is one for all brokers. Tools are told of the brokers as voters, none of which is
behind, with the controller as the leader. Any other topic is UNKNOWN_TOPIC_OR_PARTITION.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.brokers import Broker

_METADATA: Final = ("__cluster_metadata", 0)


async def handle(context: Context, request: Any) -> Reply:
    try:
        brokers = await context.streams.describe_cluster(context.principal)
    except NotAuthorized as error:
        return {"error_code": code_of(error), "error_message": str(error), "topics": (), "nodes": ()}
    now_ms = context.streams.cluster.now_ms()
    return {
        "error_code": ErrorCode.none,
        "error_message": "",
        "topics": [
            {
                "topic_name": topic.topic_name,
                "partitions": [
                    _partition(topic.topic_name, each.partition_index, brokers, now_ms) for each in topic.partitions
                ],
            }
            for topic in request.topics
        ],
        "nodes": [
            {
                "node_id": broker.broker_id,
                "listeners": [{"name": "PLAINTEXT", "host": broker.host, "port": broker.port}],
            }
            for broker in brokers
        ],
    }


def _partition(topic: str, index: int, brokers: list[Broker], now_ms: int) -> Fields:
    if (topic, index) != _METADATA:
        return {
            "partition_index": index,
            "error_code": ErrorCode.unknown_topic_or_partition,
            "error_message": f"there is no quorum of {topic}-{index}",
            "leader_id": 0,
            "leader_epoch": 0,
            "high_watermark": 0,
            "current_voters": (),
            "observers": (),
        }
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "error_message": "",
        "leader_id": brokers[0].broker_id,
        "leader_epoch": 0,
        "high_watermark": 0,
        "current_voters": [
            {
                "replica_id": broker.broker_id,
                "replica_directory_id": None,
                "log_end_offset": 0,
                "last_fetch_timestamp": now_ms,
                "last_caught_up_timestamp": now_ms,
            }
            for broker in brokers
        ],
        "observers": (),
    }


API = api(55, handle, versions=(0, 2))
