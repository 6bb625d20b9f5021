"""ListGroups, v0–v5.

The groups that this broker would be asked about; clients ask every broker. Filters by state (v4+) and type (v5+:
classic, consumer or share). A group without members is listed as long as it has offsets or had a generation.
"""

from typing import Any

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code


async def handle(context: Context, request: Any) -> Reply:
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {each.lower() for each in getattr(request, "types_filter", ())}
    try:
        groups = await context.groups.listed(context.principal)
    except LakestreamError as error:
        return {"error_code": coordinator_code(error), "groups": ()}
    return {
        "groups": [
            {
                "group_id": group.name,
                "protocol_type": group.protocol_type,
                "group_state": group.state.value,
                "group_type": group.kind,
            }
            for group in groups
            if (not states or group.state.value.lower() in states) and (not types or group.kind in types)
        ]
    }


API = api(16, handle, versions=(0, 5))
