"""IncrementalAlterConfigs, v0–v1.

Sets, deletes (back to the default), appends to or subtracts from single settings of a topic or a group; the others
stay. What is no setting of it, or cannot be, is INVALID_CONFIG, with a sentence. Also sets the levels of this broker's
loggers, until it stops. Settings of brokers and subscriptions to clients' metrics are INVALID_REQUEST.
validate_only checks everything and changes nothing.
"""

from typing import Any

from lakestream.kafka.apis.altering import alter
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.stream.configs import Wanted, step_by_step


async def handle(context: Context, request: Any) -> Reply:
    responses = []
    for resource in request.resources:
        wanted = [Wanted(config.name, config.config_operation, config.value) for config in resource.configs]
        change = step_by_step(wanted)
        responses.append(await alter(context, resource, change, validate_only=request.validate_only))
    return {"responses": responses}


API = api(44, handle, versions=(0, 1))
