"""DescribeClientQuotas, v0–v1.

The quotas of clients whose entity has all components that are asked for, by name, as the default of their kind, or any;
strict: and no others.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.metadata.quotas import Quota

_KINDS: Final = ("client-id", "user", "ip")


class Match:
    """By Kafka's numbers."""

    EXACT: Final = 0
    DEFAULT: Final = 1
    ANY: Final = 2


async def handle(context: Context, request: Any) -> Reply:
    try:
        quotas = await context.streams.cluster.quotas(context.principal)
    except LakestreamError as error:
        return {"error_code": code_of(error), "error_message": str(error), "entries": None}
    fault = _fault(request.components)
    if fault is not None:
        code, message = fault
        return {"error_code": code, "error_message": message, "entries": None}
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in quota.entity.items()],
                "values": [{"key": limit, "value": value} for limit, value in sorted(quota.limits.items())],
            }
            for quota in quotas
            if _matches(quota, request)
        ],
    }


def _fault(components: Any) -> tuple[ErrorCode, str] | None:
    kinds = [component.entity_type for component in components]
    for component in components:
        kind, match = component.entity_type, component.match_type
        if not kind:
            return ErrorCode.invalid_request, "a component has a kind"
        if kind not in _KINDS:
            return ErrorCode.unsupported_version, f"there is no kind of client called {kind}"
        if match not in (Match.EXACT, Match.DEFAULT, Match.ANY):
            return ErrorCode.invalid_request, f"there is no way {match} to match"
        if (component.match is None) == (match == Match.EXACT):
            return ErrorCode.invalid_request, "an exact match has a name, and no other has one"
    if len(set(kinds)) < len(kinds):
        return ErrorCode.invalid_request, "each kind may be asked for once"
    if "ip" in kinds and len(kinds) > 1:
        return ErrorCode.invalid_request, "ip is not combined with other kinds"
    return None


def _matches(quota: Quota, request: Any) -> bool:
    for component in request.components:
        kind, match = component.entity_type, component.match_type
        if kind not in quota.entity or (match == Match.DEFAULT and quota.entity[kind] is not None):
            return False
        if match == Match.EXACT and quota.entity[kind] != component.match:
            return False
    return not (request.strict and len(quota.entity) > len(request.components))


API = api(48, handle, versions=(0, 1))
