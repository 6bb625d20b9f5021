"""ListTransactions, v0–v2.

There are none yet. States that there cannot be are named as unknown; a pattern that is none is
INVALID_REGULAR_EXPRESSION.
"""

import re
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.kafka.apis.api import Context, Reply, api

_STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


async def handle(context: Context, request: Any) -> Reply:
    pattern = getattr(request, "transactional_id_pattern", None)
    try:
        re.compile(pattern or "")
    except re.error:
        return {
            "error_code": ErrorCode.invalid_regular_expression,
            "unknown_state_filters": (),
            "transaction_states": (),
        }
    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": [state for state in dict.fromkeys(request.state_filters) if state not in _STATES],
        "transaction_states": (),
    }


API = api(66, handle, versions=(0, 2))
