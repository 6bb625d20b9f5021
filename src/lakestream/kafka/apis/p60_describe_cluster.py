"""DescribeCluster, v0–v2.

The live brokers, the cluster's id, and the lowest live id as controller. Only broker endpoints exist (endpoint type 1);
controllers are asked for in vain: UNSUPPORTED_ENDPOINT_TYPE.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of

_BROKERS: Final = 1


async def handle(context: Context, request: Any) -> Reply:
    streams, endpoints = context.streams, getattr(request, "endpoint_type", _BROKERS)
    if endpoints != _BROKERS:
        return {
            "error_code": ErrorCode.unsupported_endpoint_type,
            "error_message": "this cluster has broker endpoints only",
            "cluster_id": streams.cluster_id,
            "endpoint_type": endpoints,
            "brokers": (),
        }
    try:
        brokers = await streams.describe_cluster(context.principal)
    except NotAuthorized as error:
        return {"error_code": code_of(error), "error_message": str(error), "cluster_id": "", "brokers": ()}
    return {
        "cluster_id": streams.cluster_id,
        "controller_id": brokers[0].broker_id,
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
