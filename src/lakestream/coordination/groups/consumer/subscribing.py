"""Which topics the members of a group read, patterns looked up among the topics that there are."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lakestream.coordination.groups.consumer.members import ConsumerMember
from lakestream.coordination.groups.consumer.topics import NO_TOPICS, KnownTopics
from lakestream.coordination.groups.patterns import InvalidPattern, Pattern

log = logging.getLogger(__name__)

MayDescribe = Callable[[str], bool]
"""Whether whoever asks may know of the topic of that name."""


@dataclass(slots=True)
class Subscribing:
    """Nothing of it is stored: what it knows follows from the members and the topics."""

    seen: KnownTopics = NO_TOPICS
    """The topics that patterns were last looked up among."""
    _found: dict[str, frozenset[str]] = field(default_factory=dict)
    _compiled: dict[str, Pattern] = field(default_factory=dict)

    def look_up(self, pattern: str, topics: KnownTopics) -> frozenset[str]:
        """Raises `InvalidPattern`."""
        compiled = self._compiled.get(pattern)
        if compiled is None:
            compiled = self._compiled[pattern] = Pattern(pattern)
        return frozenset(name for name in topics.by_name if compiled.matches(name))

    def refresh(self, members: Iterable[ConsumerMember], topics: KnownTopics, may_describe: MayDescribe) -> None:
        """Looks all patterns up again if there are other topics, else only new ones."""
        patterns = {member.pattern for member in members if member.pattern}
        known = self._found if topics is self.seen else {}
        self._found = {
            pattern: known[pattern] if pattern in known else self._visible(pattern, topics, may_describe)
            for pattern in patterns
        }
        self._compiled = {pattern: self._compiled[pattern] for pattern in patterns if pattern in self._compiled}
        self.seen = topics

    def _visible(self, pattern: str, topics: KnownTopics, may_describe: MayDescribe) -> frozenset[str]:
        try:
            found = self.look_up(pattern, topics)
        except InvalidPattern as error:
            log.warning("the topics of pattern %r cannot be found: %s", pattern, error)
            return frozenset()
        return frozenset(name for name in found if may_describe(name))

    def names(self, member: ConsumerMember) -> frozenset[str]:
        return frozenset(member.topics) | self._found.get(member.pattern, frozenset())
