"""Topics as requests name them: by name or, in newer versions, by id."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, cast
from uuid import UUID

from kio.schema.errors import ErrorCode

from lakestream.errors import CorruptObject, LakestreamError, UnknownStream
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.describing import LEADER_EPOCH
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.stream import Streams

log = logging.getLogger(__name__)

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


class FoundTopics(dict[TopicKey, Topic]):
    """The topics that a request names and that are there. `damaged`: those whose rows cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged: dict[TopicKey, CorruptObject] = {}

    def add(self, topics: Mapping[str, Topic | CorruptObject] | Mapping[UUID, Topic | CorruptObject]) -> None:
        for key, topic in topics.items():
            if isinstance(topic, CorruptObject):
                log.error("topic %s cannot be served: %s", key, topic)
                self.damaged[key] = topic
            else:
                self[key] = topic

    def refusal(self, key: TopicKey) -> ErrorCode:
        """Why a topic is not among them."""
        damage = self.damaged.get(key)
        return unknown(key) if damage is None else code_of(damage)


def cached(streams: Streams, keys: Iterable[TopicKey]) -> FoundTopics | None:
    """All of them without waiting, or None."""
    found = FoundTopics()
    for key in keys:
        topic = streams.topics.cached_name(key) if isinstance(key, str) else streams.topics.cached_id(key or NO_ID)
        if topic is None:
            return None
        found[key] = topic
    return found


async def find_now(streams: Streams, keys: Iterable[TopicKey]) -> FoundTopics:
    """Those that are on the topic list now. For answers that no log checks: a name may mean another topic by now."""
    wanted = list(keys)
    found = FoundTopics()
    if names := [key for key in wanted if isinstance(key, str)]:
        found.add(await streams.topics.find_names(names))
    if topic_ids := [key for key in wanted if isinstance(key, UUID)]:
        found.add(await streams.topics.find_ids(topic_ids))
    return found


async def find(streams: Streams, keys: Iterable[TopicKey]) -> FoundTopics:
    """Those that exist, for answers that follow a look at the log's head: the cache may be old, the log itself refuses
    what is gone."""
    found = FoundTopics()
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
        found.add(await streams.topics.find_names(names))
    if topic_ids:
        found.add(await streams.topics.find_ids(topic_ids))
    return found


def partition_of(topic: Topic | None, index: int) -> StreamPartition | None:
    """None if there is no such partition."""
    if topic is None or not 0 <= index < topic.partitions:
        return None
    return StreamPartition(topic.topic_id, index)


def epoch_error(leader_epoch: int) -> ErrorCode:
    """A client that knows a later epoch than there is has not learnt it from us."""
    return ErrorCode.unknown_leader_epoch if leader_epoch > LEADER_EPOCH else ErrorCode.none


def partition_error(
    streams: Streams,
    topic_id: UUID,
    error: LakestreamError,
    code: Callable[[LakestreamError], ErrorCode] = code_of,
) -> ErrorCode:
    """The code of a failed append, fetch or lookup; what the cache said of a topic that is gone is forgotten."""
    if isinstance(error, UnknownStream):
        streams.topics.forget(topic_id)
    return code(error)
