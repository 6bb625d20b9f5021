"""ReadShareGroupStateSummary, v0–v1.

CLUSTER_AUTHORIZATION_FAILED: see `share_state`.
"""

from typing import Any

from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.share_state import refuse_state


async def handle(context: Context, request: Any) -> Reply:
    return refuse_state(request)


API = api(87, handle, versions=(0, 1))
