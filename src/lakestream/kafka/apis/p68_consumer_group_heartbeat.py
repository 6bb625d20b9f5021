"""ConsumerGroupHeartbeat, v0–v1.

How members of the newer protocol join, say what they want and have, hear what they are to have, and leave. Epoch 0
joins, -1 leaves, -2 leaves for a while (static members). v0 gives an id to a member that brings none; v1's bring their
own, and may subscribe by a pattern, in the words of RE2. The time without a heartbeat after which a member is out, and
the interval of heartbeats, are the coordinator's.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from lakestream.coordination.groups import Beat, Beaten, GroupError
from lakestream.coordination.groups.consumer.model import Partitions
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.assigned import assigned_fields
from lakestream.kafka.errors import coordinator_code, group_code
from lakestream.kafka.wire.codec import milliseconds


async def handle(context: Context, request: Any) -> Reply:
    rebalance_timeout_ms = milliseconds(request.rebalance_timeout)
    names = request.subscribed_topic_names
    beat = Beat(
        request.member_id,
        request.member_epoch,
        context.client_id,
        context.client_host,
        request.instance_id,
        request.rack_id,
        None if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        None if names is None else tuple(names),
        getattr(request, "subscribed_topic_regex", None),
        request.server_assignor,
        _partitions(request.topic_partitions),
        gets_id=context.version == 0,
    )
    try:
        beaten = await context.groups.beat(context.principal, request.group_id, beat)
        code, message = group_code(beaten.error), beaten.message
    except LakestreamError as error:
        beaten, code, message = Beaten(GroupError.NOT_COORDINATOR), coordinator_code(error), str(error)
    return {
        "error_code": code,
        "error_message": message or None,
        "member_id": beaten.member_id or None,
        "member_epoch": beaten.epoch,
        "heartbeat_interval": beaten.heartbeat_interval_ms,
        "assignment": assigned_fields(beaten.assigned),
    }


def _partitions(topics: Sequence[Any] | None) -> Partitions | None:
    if topics is None:
        return None
    found: dict[uuid.UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.topic_id is not None and topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return found


API = api(68, handle, versions=(0, 1))
