"""The topics that members of a group may ask for, as the coordinator saw them last. Pure, never changed: another object
means that something may have changed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID


@dataclass(frozen=True, slots=True)
class KnownTopic:
    topic_id: UUID
    partitions: int


@dataclass(frozen=True, slots=True, eq=False)
class KnownTopics:
    """By name. Compared by identity."""

    by_name: Mapping[str, KnownTopic]
    names: Mapping[UUID, str]

    @classmethod
    def of(cls, by_name: Mapping[str, KnownTopic]) -> "KnownTopics":
        return cls(by_name, {topic.topic_id: name for name, topic in by_name.items()})

    def digest(self, names: Collection[str]) -> str:
        """Changes when one of these topics is created, deleted or grows."""
        found = [(name, self.by_name[name]) for name in sorted(names) if name in self.by_name]
        told = ";".join(f"{name} {topic.topic_id.hex} {topic.partitions}" for name, topic in found)
        return blake2b(told.encode(), digest_size=16).hexdigest()


NO_TOPICS = KnownTopics({}, {})
