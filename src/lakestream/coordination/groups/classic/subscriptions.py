"""Which topics the members of a group of consumers read, out of what they told one another. Pure.

That is theirs: Kafka's consumers write it as ConsumerProtocolSubscription, a version and then the names of topics, and
what they write behind that is not looked at.
"""

import struct
from collections.abc import Iterable
from typing import Final

from lakestream.coordination.groups.classic.members import Member

CONSUMERS: Final = "consumer"
"""The protocol type of groups of consumers."""
_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed(members: Iterable[Member]) -> frozenset[str] | None:
    """None: some member does not say it in a way that can be read."""
    found: set[str] = set()
    for member in members:
        for protocol in member.protocols:
            topics = _topics(protocol.metadata)
            if topics is None:
                return None
            found.update(topics)
    return frozenset(found)


def _topics(metadata: bytes) -> list[str] | None:
    try:
        _, count = _HEAD.unpack_from(metadata)
        position, topics = _HEAD.size, []
        if not 0 <= count <= len(metadata):
            return None
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                return None
            topics.append(name.decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
