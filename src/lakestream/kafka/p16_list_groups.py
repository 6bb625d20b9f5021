"""ListGroups, v0–v5.

The groups that this broker coordinates now; clients ask every broker. Filters by state (v4+) and type (v5+;
there is only "classic"). A group that nobody uses and that was given back is not
listed until somebody asks for it.
"""

from typing import Any, Final

from lakestream.kafka.api import Context, Reply, api

_TYPE: Final = "classic"


async def handle(context: Context, request: Any) -> Reply:
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {each.lower() for each in getattr(request, "types_filter", ())}
    if types and _TYPE not in types:
        return {"groups": ()}
    return {
        "groups": [
            {
                "group_id": held.name,
                "protocol_type": held.machine.protocol_type,
                "group_state": held.machine.state.value,
                "group_type": _TYPE,
            }
            for held in context.groups.groups()
            if not states or held.machine.state.value.lower() in states
        ]
    }


API = api(16, handle)
