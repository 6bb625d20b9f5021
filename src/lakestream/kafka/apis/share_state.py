"""Requests by which Kafka's brokers keep the state of share groups with one another.

Here each broker changes that state itself, by compare-and-set, and nobody else may: a write past that would give out
again what was acknowledged. So they are answered as Kafka answers whoever is no broker of its cluster.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.kafka.apis.api import Reply

_WHY = "brokers keep the state of share groups in their metadata store: nobody else reads or writes it"


def refuse_state(request: Any) -> Reply:
    return {
        "results": [
            {
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition": each.partition,
                        "error_code": ErrorCode.cluster_authorization_failed,
                        "error_message": _WHY,
                        "state_epoch": 0,
                        "leader_epoch": 0,
                        "start_offset": 0,
                        "delivery_complete_count": 0,
                        "state_batches": (),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }
