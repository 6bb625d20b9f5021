"""The topics that there are, for groups: read again now and then, and the same object while nothing has changed."""

import asyncio
from collections.abc import Sequence
from typing import Final

from lakestream.coordination.groups.consumer.topics import NO_TOPICS, KnownTopic, KnownTopics
from lakestream.metadata.topics.list import Topic, Topics

_AGAIN_S: Final = 1.0
"""How old a heartbeat takes the list to be at the most, whoever has changed it."""


class TopicWatch:
    """Over the topic list, which is read once for all groups. Raises what reading it raises."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._listed: Sequence[Topic] | None = None
        self._known = NO_TOPICS
        self._read_s = float("-inf")
        self._lock = asyncio.Lock()

    async def known(self, *, fresh: bool) -> KnownTopics:
        """`fresh`: with every change that was made before the call."""
        asked_s = asyncio.get_running_loop().time()
        since_s = asked_s if fresh else asked_s - _AGAIN_S
        async with self._lock:
            if self._read_s < since_s or self._listed is None:
                begun_s = asyncio.get_running_loop().time()
                listed = await self._topics.list()
                if listed is not self._listed:
                    self._known = KnownTopics.of(
                        {topic.name: KnownTopic(topic.topic_id, topic.partitions) for topic in listed}
                    )
                self._listed, self._read_s = listed, begun_s
            return self._known
