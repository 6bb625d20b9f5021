"""AlterConfigs, v0–v2.

Replaces all settings of a topic or a group: what is not named goes back to its default. What is no setting of it, or
cannot be, is INVALID_CONFIG, with a sentence. Brokers' settings are INVALID_REQUEST.
validate_only checks everything and changes nothing.
"""

from typing import Any

from lakestream.kafka.apis.altering import alter
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.stream.configs import instead


async def handle(context: Context, request: Any) -> Reply:
    responses = []
    for resource in request.resources:
        given = {config.name: config.value for config in resource.configs}
        change = instead(given)
        responses.append(await alter(context, resource, change, validate_only=request.validate_only))
    return {"responses": responses}


API = api(33, handle, versions=(0, 2))
