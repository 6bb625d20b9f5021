"""AlterConfigs, v0–v2.

Replaces all settings of a topic: what is not named goes back to its default. Only settings that mean something here are
taken (INVALID_CONFIG says which); one that repeats what holds for every topic is no change. Brokers' settings are
INVALID_REQUEST. validate_only checks everything and changes nothing.
"""

from typing import Any

from lakestream.kafka.altering import alter, instead
from lakestream.kafka.api import Context, Reply, api


async def handle(context: Context, request: Any) -> Reply:
    responses = []
    for resource in request.resources:
        given = {config.name: config.value for config in resource.configs}
        change = instead(given, context.streams.max_batch_bytes)
        responses.append(await alter(context, resource, change, validate_only=request.validate_only))
    return {"responses": responses}


API = api(33, handle)
