"""A plain request for any version of any Kafka API, made from its schema."""

import dataclasses
import datetime as dt
import types
import typing
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from support.clients.batches import batch
from support.clients.wire import span

TOPIC = "orders"


def plain_request(key: int, version: int, topic_id: UUID) -> dict[str, Any]:
    """About the topic `TOPIC`, or that id, and about the group `x`."""
    return fields_of(load_request_schema(key, version), topic_id)


def plain_value(hint: Any, name: str, topic_id: UUID) -> Any:
    """A value for a field, sensible enough to get through: one element in every list."""
    arguments = [argument for argument in typing.get_args(hint) if argument not in (types.NoneType, ...)]
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return plain_value(arguments[0], name, topic_id)
    if typing.get_origin(hint) is tuple:
        return [plain_value(arguments[0], name, topic_id)]
    if dataclasses.is_dataclass(hint):
        return fields_of(typing.cast(type, hint), topic_id)
    if hint is UUID:
        return topic_id
    if issubclass(hint, dt.timedelta):
        return span(100)
    if issubclass(hint, bytes):
        return batch(b"v") if name == "records" else b"m"
    if issubclass(hint, bool):
        return False
    if issubclass(hint, int):
        sensible = {"acks": -1, "resource_type": 2, "endpoint_type": 1, "max_bytes": 1000}
        return (sensible | {"num_partitions": 1, "replication_factor": 1}).get(name, 0)
    if issubclass(hint, float):
        return 1.0
    return TOPIC if name in ("name", "topic", "topic_names", "resource_name") else "x"


def fields_of(schema: type, topic_id: UUID) -> dict[str, Any]:
    hints = typing.get_type_hints(schema)
    names = [field.name for field in dataclasses.fields(schema)]
    is_optional = "transactional_id" in names and ("acks" in names or "transaction_timeout" in names)
    left_out = ("assignments", "transactional_id") if is_optional else ("assignments",)
    present = [field for field in dataclasses.fields(schema) if field.name not in left_out]
    values = {
        field.name: plain_value(hints[field.name], field.name, topic_id)
        for field in present
        if field.metadata.get("tag") is None
    }
    if any(field.name == "assignments" for field in dataclasses.fields(schema)):
        values["assignments"] = ()
    if "cursor" in values:
        values["cursor"] = None
    if is_optional:
        values["transactional_id"] = None
    return values
