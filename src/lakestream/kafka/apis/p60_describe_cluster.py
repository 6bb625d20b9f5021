"""DescribeCluster, v0–v2.

The live brokers, the cluster's id, and the lowest live id as controller. Only broker endpoints exist (endpoint type 1);
controllers are asked for in vain: MISMATCHED_ENDPOINT_TYPE, anything else is UNSUPPORTED_ENDPOINT_TYPE. No broker is
ever fenced.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.authorized import cluster_operations
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.describing import UNASKED

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


async def handle(context: Context, request: Any) -> Reply:
    streams, endpoints = context.streams, getattr(request, "endpoint_type", _BROKERS)
    if endpoints != _BROKERS:
        is_known = endpoints == _CONTROLLERS
        return {
            "error_code": ErrorCode.mismatched_endpoint_type if is_known else ErrorCode.unsupported_endpoint_type,
            "error_message": "this cluster has broker endpoints only",
            "cluster_id": "",
            "brokers": (),
        }
    try:
        brokers = await streams.describe_cluster(context.principal)
    except NotAuthorized as error:
        return {"error_code": code_of(error), "error_message": str(error), "cluster_id": "", "brokers": ()}
    return {
        "cluster_id": streams.cluster_id,
        "controller_id": brokers[0].broker_id,
        "cluster_authorized_operations": cluster_operations(context)
        if request.include_cluster_authorized_operations
        else UNASKED,
        "brokers": [
            {
                "broker_id": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.zone,
                "is_fenced": False,
            }
            for broker in brokers
        ],
    }


API = api(60, handle, versions=(0, 2))
