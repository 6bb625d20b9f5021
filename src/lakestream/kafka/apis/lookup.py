"""Topics as requests name them: by name or, in newer versions, by id."""

import dataclasses
import functools
from collections.abc import Hashable
from typing import Any, cast

from kio.schema.errors import ErrorCode

from lakestream.kafka.wire.describing import LEADER_EPOCH
from lakestream.stream import TopicKey


def key_of(topic: Any) -> TopicKey:
    """From an entity of a request, whichever of the fields its version has."""
    key: TopicKey = getattr(topic, _key_field(cast(Hashable, type(topic))))
    return key


@functools.cache
def _key_field(kind: Any) -> str:
    fields = {field.name for field in dataclasses.fields(kind)}
    return next(name for name in ("topic_id", "name", "topic") if name in fields)


def named(key: TopicKey) -> dict[str, TopicKey]:
    """The same key as fields of a response."""
    if isinstance(key, str):
        return {"name": key, "topic": key, "topic_id": None}
    return {"name": "", "topic": "", "topic_id": key}


def epoch_error(leader_epoch: int) -> ErrorCode:
    """A client that knows a later epoch than there is has not learnt it from us."""
    return ErrorCode.unknown_leader_epoch if leader_epoch > LEADER_EPOCH else ErrorCode.none


def is_committed(request: Any) -> bool:
    """Whether the client wants committed records only; it asks for the others by 0, as do requests that cannot say."""
    return bool(getattr(request, "isolation_level", 0))
