"""Topics as requests name them: by name or, in newer versions, by id."""

import dataclasses
import functools
from collections.abc import Hashable, Iterable
from typing import Any, Final, cast
from uuid import UUID

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError, UnknownStream
from lakestream.kafka.api import LEADER_EPOCH
from lakestream.kafka.errors import code_of
from lakestream.metadata.topics import Topic
from lakestream.model import StreamPartition
from lakestream.stream import Streams

NO_ID: Final = UUID(int=0)
TopicKey = str | UUID | None
"""How one request names a topic; None is the zero id."""


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


def unknown(key: TopicKey) -> ErrorCode:
    return ErrorCode.unknown_topic_or_partition if isinstance(key, str) else ErrorCode.unknown_topic_id


def cached(streams: Streams, keys: Iterable[TopicKey]) -> dict[TopicKey, Topic] | None:
    """All of them without waiting, or None."""
    found: dict[TopicKey, Topic] = {}
    for key in keys:
        topic = streams.topics.cached_name(key) if isinstance(key, str) else streams.topics.cached_id(key or NO_ID)
        if topic is None:
            return None
        found[key] = topic
    return found


async def find(streams: Streams, keys: Iterable[TopicKey]) -> dict[TopicKey, Topic]:
    """Those that exist. A cached answer is good enough: the log itself refuses what is gone."""
    found: dict[TopicKey, Topic] = {}
    names, topic_ids = [], []
    for key in keys:
        if isinstance(key, str):
            topic = streams.topics.cached_name(key)
            if topic is None:
                names.append(key)
        elif key is not None:
            topic = streams.topics.cached_id(key)
            if topic is None:
                topic_ids.append(key)
        else:
            topic = None
        if topic is not None:
            found[key] = topic
    if names:
        found.update((topic.name, topic) for topic in (await streams.topics.by_names(names)).values())
    if topic_ids:
        found.update((topic.topic_id, topic) for topic in (await streams.topics.by_ids(topic_ids)).values())
    return found


def partition_of(topic: Topic | None, index: int) -> StreamPartition | None:
    """None if there is no such partition."""
    if topic is None or not 0 <= index < topic.partitions:
        return None
    return StreamPartition(topic.topic_id, index)


def epoch_error(leader_epoch: int) -> ErrorCode:
    """A client that knows a later epoch than there is has not learnt it from us."""
    return ErrorCode.unknown_leader_epoch if leader_epoch > LEADER_EPOCH else ErrorCode.none


def partition_error(streams: Streams, topic_id: UUID, error: LakestreamError) -> ErrorCode:
    """The code of a failed append, fetch or lookup; what the cache said of a topic that is gone is forgotten."""
    if isinstance(error, UnknownStream):
        streams.topics.forget(topic_id)
    return code_of(error)
