"""Topics as callers name them, for those who may: found, unknown, damaged or denied, one by one.

A name is looked up only for those who may do what they want with it, so that a refusal says the same whether the topic
is there or not. An id has to be looked up first; it is random, so nobody learns much from the refusal, which keeps the
name back.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from lakestream.access import CLUSTER_NAME, Authorizer, Operation, Principal, ResourceKind, allowed, denied
from lakestream.errors import CorruptObject, LakestreamError, UnknownStream, UnknownStreamId
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.stream.requests import TopicKey

log = logging.getLogger(__name__)

FoundTopics = dict[TopicKey, Topic | LakestreamError]
"""Every key that was asked for, with its topic or with what is in the way."""

_TOPIC: Final = ResourceKind.TOPIC


class TopicRights:
    def __init__(self, topics: Topics, authorizer: Authorizer) -> None:
        self._topics = topics
        self._authorizer = authorizer

    def allows(self, principal: Principal, operation: Operation, name: str) -> bool:
        return self._authorizer.allows(principal, operation, _TOPIC, name)

    def allowed(self, principal: Principal, name: str) -> Sequence[Operation]:
        return allowed(self._authorizer, principal, _TOPIC, name)

    def allows_creating(self, principal: Principal, name: str) -> bool:
        """As in Kafka: any topic, or topics of this name."""
        cluster = self._authorizer.allows(principal, Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME)
        return cluster or self.allows(principal, Operation.CREATE, name)

    def cached(
        self, principal: Principal, operation: Operation, asked: Iterable[tuple[TopicKey, int]]
    ) -> FoundTopics | None:
        """The topics of all these partitions without waiting, or None."""
        found: FoundTopics = {}
        for key, index in asked:
            if key not in found:
                topic = self._cached(key)
                if topic is None:
                    return None
                found[key] = self._judged(principal, operation, key, topic)
            known = found[key]
            if isinstance(known, Topic) and index >= known.partitions:
                return None
        return found

    async def find(self, principal: Principal, operation: Operation, keys: Iterable[TopicKey]) -> FoundTopics:
        """For answers that follow a look at the log's head: the cache may be old, the log refuses what is gone."""
        found: FoundTopics = {}
        unknown = []
        for key in dict.fromkeys(keys):
            topic = self._cached(key)
            if topic is None:
                unknown.append(key)
            else:
                found[key] = self._judged(principal, operation, key, topic)
        return found | await self.find_now(principal, operation, unknown) if unknown else found

    async def find_partitions(
        self, principal: Principal, operation: Operation, asked: Iterable[tuple[TopicKey, int]]
    ) -> FoundTopics:
        """The same for certain partitions: a topic may have grown since it was remembered."""
        highest = _highest(asked)
        found = await self.find(principal, operation, highest)
        grown = [key for key, topic in found.items() if isinstance(topic, Topic) and highest[key] >= topic.partitions]
        return found | await self.find_now(principal, operation, grown) if grown else found

    async def find_now(self, principal: Principal, operation: Operation, keys: Iterable[TopicKey]) -> FoundTopics:
        """As they are on the topic list now. For answers that no log checks: a name may mean another topic by now."""
        found: FoundTopics = {}
        names, topic_ids = [], []
        for key in dict.fromkeys(keys):
            if not isinstance(key, str):
                found[key] = self._unknown_id(principal, operation, key)
                if key is not None:
                    topic_ids.append(key)
            elif self.allows(principal, operation, key):
                found[key] = UnknownStream(f"there is no topic {key}")
                names.append(key)
            else:
                found[key] = denied(principal, operation, _TOPIC, key)
        if names:
            found.update(await self._topics.find_names(names))
        if topic_ids and self._authorizer.allows_any(principal, operation, _TOPIC):
            for topic_id, topic in (await self._topics.find_ids(topic_ids)).items():
                found[topic_id] = (
                    topic if isinstance(topic, CorruptObject) else self._judged(principal, operation, topic_id, topic)
                )
        for key, each in found.items():
            if isinstance(each, CorruptObject):
                log.error("topic %s cannot be served: %s", key, each)
        return found

    def _cached(self, key: TopicKey) -> Topic | None:
        if isinstance(key, str):
            return self._topics.cached_name(key)
        return None if key is None else self._topics.cached_id(key)

    def _judged(
        self, principal: Principal, operation: Operation, key: TopicKey, topic: Topic
    ) -> Topic | LakestreamError:
        if self._authorizer.allows(principal, operation, _TOPIC, topic.name):
            return topic
        return denied(principal, operation, _TOPIC, str(key))

    def _unknown_id(self, principal: Principal, operation: Operation, topic_id: UUID | None) -> LakestreamError:
        if self._authorizer.allows_any(principal, operation, _TOPIC):
            return UnknownStreamId(f"no topic has the id {topic_id}")
        return denied(principal, operation, _TOPIC, str(topic_id))


def _highest(asked: Iterable[tuple[TopicKey, int]]) -> dict[TopicKey, int]:
    highest: dict[TopicKey, int] = {}
    for key, index in asked:
        highest[key] = max(index, highest.get(key, index))
    return highest
