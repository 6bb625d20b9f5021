"""AlterClientQuotas, v0–v1.

Quotas of bytes a second by client id, or for all that have none of their own; every broker enforces them by itself, as
in Kafka. What would not be enforced is not taken: quotas of users and addresses, of time and of changes
(INVALID_REQUEST), as is what Kafka refuses. Entries are judged one by one. validate_only changes nothing.
"""

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.stream import QuotaChange

_Key = tuple[tuple[str, str | None], ...]


async def handle(context: Context, request: Any) -> Reply:
    keys = [_key(entry) for entry in request.entries]
    times = Counter(keys)
    asked = dict(zip(keys, request.entries, strict=True))
    doubled = {
        key for key, entry in asked.items() if times[key] > 1 or len({op.key for op in entry.ops}) < len(entry.ops)
    }
    single = {
        key: QuotaChange(dict(key), {op.key: None if op.remove else op.value for op in entry.ops})
        for key, entry in asked.items()
        if key not in doubled
    }
    cluster, dry_run = context.streams.cluster, request.validate_only
    try:
        faults = await cluster.alter_quotas(context.principal, list(single.values()), dry_run=dry_run)
    except LakestreamError as error:
        return {"entries": [_result(key, code_of(error), str(error)) for key in asked]}
    told = dict(zip(single, faults, strict=True))
    return {"entries": [_told(key, told.get(key), doubled=key in doubled) for key in asked]}


def _key(entry: Any) -> _Key:
    return tuple(sorted({each.entity_type: each.entity_name for each in entry.entity}.items()))


def _told(key: _Key, fault: LakestreamError | None, *, doubled: bool) -> Fields:
    if doubled:
        return _result(key, ErrorCode.invalid_request, "it is named twice, or one of its quotas is")
    if fault is not None:
        return _result(key, code_of(fault), str(fault))
    return _result(key, ErrorCode.none, None)


def _result(key: _Key, code: ErrorCode, message: str | None) -> Fields:
    entity = [{"entity_type": kind, "entity_name": name} for kind, name in key]
    return {"error_code": code, "error_message": message, "entity": entity}


API = api(49, handle, versions=(0, 1))
