"""ShareGroupHeartbeat, v1.

How members of share groups join, say which topics they read, hear which partitions to ask for, and leave. Epoch 0
joins, -1 leaves. Members bring their ids. A group of another kind is GROUP_ID_NOT_FOUND.
"""

from typing import Any

from lakestream.coordination.groups import Beat, Beaten, GroupError
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.assigned import assigned_fields
from lakestream.kafka.errors import coordinator_code, group_code


async def handle(context: Context, request: Any) -> Reply:
    names = request.subscribed_topic_names
    beat = Beat(
        request.member_id,
        request.member_epoch,
        context.client_id,
        context.client_host,
        rack_id=request.rack_id,
        topics=None if names is None else tuple(names),
    )
    try:
        beaten = await context.groups.share_beat(context.principal, request.group_id, beat)
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


API = api(76, handle, versions=(1, 1))
