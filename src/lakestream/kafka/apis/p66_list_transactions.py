"""ListTransactions, v0–v2.

The transactional ids of which this broker tells, those that the caller may describe: each is told of by one of the
brokers that live. States that there cannot be are named as unknown; a pattern (v2) that is none is
INVALID_REGULAR_EXPRESSION, and so is one that could take long: more than two `*`, `+` or open ranges, or one of them
behind a bracket.
"""

import re
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.coordination.transactions import STATE_NAMES, TransactionFilter
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code
from lakestream.kafka.wire.writing import Fields

_STATES: Final = frozenset({*STATE_NAMES.values(), "Dead", "PrepareEpochFence"})
_OPEN_ENDED: Final = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\})")
_REPEATED_GROUP: Final = re.compile(r"\)(?:[*+{])")
_MOST_OPEN_ENDED: Final = 2
_MOST_CHARACTERS: Final = 1_000


async def handle(context: Context, request: Any) -> Reply:
    try:
        pattern = _compiled(getattr(request, "transactional_id_pattern", None))
    except re.error:
        return _none(ErrorCode.invalid_regular_expression)
    duration_ms = getattr(request, "duration_filter", -1)
    wanted = TransactionFilter(
        frozenset(request.producer_id_filters),
        frozenset(request.state_filters) or None,
        duration_ms if duration_ms >= 0 else None,
    )
    try:
        found = await context.transactions.listed(context.principal, wanted)
    except LakestreamError as error:
        return _none(coordinator_code(error))
    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": [state for state in dict.fromkeys(request.state_filters) if state not in _STATES],
        "transaction_states": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": STATE_NAMES[each.phase],
            }
            for each in found
            if pattern is None or pattern.fullmatch(each.transactional_id)
        ],
    }


def _compiled(text: str | None) -> re.Pattern[str] | None:
    """Raises `re.error`, also for what could take long."""
    if not text:
        return None
    if (
        len(text) > _MOST_CHARACTERS
        or len(_OPEN_ENDED.findall(text)) > _MOST_OPEN_ENDED
        or _REPEATED_GROUP.search(text)
    ):
        raise re.error("it could take long to match")
    return re.compile(text)


def _none(code: ErrorCode) -> Fields:
    return {"error_code": code, "unknown_state_filters": (), "transaction_states": ()}


API = api(66, handle, versions=(0, 2))
