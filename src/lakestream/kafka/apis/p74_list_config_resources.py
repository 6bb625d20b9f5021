"""ListConfigResources, v0–v1.

What has settings: topics, the brokers that live, their loggers, and groups with settings of their own. There are no
subscriptions to clients' metrics, which are all that v0 asks for. A type that there is not is UNSUPPORTED_VERSION.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.configs import Resource
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields


async def handle(context: Context, request: Any) -> Reply:
    types = set(getattr(request, "resource_types", (Resource.CLIENT_METRICS,)) or Resource.ALL)
    try:
        context.streams.cluster.check(context.principal, Operation.DESCRIBE_CONFIGS)
        if not types.issubset(Resource.ALL):
            return {"error_code": ErrorCode.unsupported_version, "config_resources": ()}
        found: list[Fields] = []
        if Resource.TOPIC in types:
            topics = await context.streams.topics.list(context.principal)
            found += [{"resource_name": topic.name, "resource_type": Resource.TOPIC} for topic in topics]
        if Resource.GROUP in types:
            groups = await context.groups.configured(context.principal)
            found += [{"resource_name": each, "resource_type": Resource.GROUP} for each in groups]
        for kind in (Resource.BROKER, Resource.BROKER_LOGGER):
            if kind in types:
                brokers = await context.streams.brokers(context.principal)
                found += [{"resource_name": str(broker.broker_id), "resource_type": kind} for broker in brokers]
    except LakestreamError as error:
        return {"error_code": code_of(error), "config_resources": ()}
    return {"error_code": ErrorCode.none, "config_resources": found}


API = api(74, handle, versions=(0, 1))
