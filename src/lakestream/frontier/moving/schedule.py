"""Which topics may wait: a table is committed as often as its topic asks for, not at every look.

What is known here is advice only. A worker that starts anew knows nothing and lets nobody wait.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from lakestream.errors import InvalidSetting
from lakestream.frontier.moving.tiles.tile import size_of
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.log.head import Head
from lakestream.metadata.log.partition import read_extents
from lakestream.metadata.store import Store
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition

MIN_PACE_MS: Final = 100
"""Looks are no closer than this, whatever topics ask for."""


def still_waits(now_ms: int, since_ms: int, wait_ms: int) -> bool:
    """Whether less than `wait_ms` have passed. A clock that was set back cannot tell: then nobody waits any longer, for
    it could be hours until it is where it was."""
    return 0 <= now_ms - since_ms < wait_ms


@dataclass(slots=True)
class _Waiting:
    """`at_ms`: when everything that the log held was in the table, so nothing that waits is older. `counted` and
    `tail_bytes`: how much of the tail has been added up since, per partition up to an offset."""

    at_ms: int
    counted: dict[int, int] = field(default_factory=dict)
    tail_bytes: int = 0


class CommitSchedule:
    def __init__(self, store: Store, settings: PipelineSettings) -> None:
        self._store = store
        self._settings = settings
        self._waiting: dict[UUID, _Waiting] = {}

    def pace_ms(self, topics: Iterable[Topic]) -> int:
        """How far apart looks may be, so that no table gets older than its topic allows."""
        own_ms = self._settings.interval_ms
        asked = (max(MIN_PACE_MS, _interval_ms(topic) or own_ms) for topic in topics if topic.configs)
        return min(own_ms, min(asked, default=own_ms))

    def restart(self, topic_id: UUID, at_ms: int) -> None:
        """All that the log held at that time is in the table."""
        self._waiting[topic_id] = _Waiting(at_ms)

    async def is_due(self, topic: Topic, heads: Mapping[int, Head], *, now_ms: int, pace_ms: int) -> bool:
        """Whether this is the last look before something becomes older than the topic's interval, or its tail is longer
        than a WAL should get."""
        waiting = self._waiting.get(topic.topic_id)
        interval_ms = _interval_ms(topic) or self._settings.interval_ms
        if waiting is None or not still_waits(now_ms, waiting.at_ms, interval_ms - pace_ms):
            return True
        await self._count(topic, heads, waiting)
        return waiting.tail_bytes >= self._settings.max_tail_bytes

    def forget(self, present: Collection[UUID]) -> None:
        """All but those."""
        for topic_id in self._waiting.keys() - set(present):
            del self._waiting[topic_id]

    async def _count(self, topic: Topic, heads: Mapping[int, Head], waiting: _Waiting) -> None:
        """Adds up what came since the last look: each extent is read once however long the topic waits."""
        grown = {
            index: max(head.frontier, waiting.counted.get(index, 0))
            for index, head in heads.items()
            if max(head.frontier, waiting.counted.get(index, 0)) < head.next_offset
        }
        found = await asyncio.gather(
            *(
                read_extents(self._store, StreamPartition(topic.topic_id, index), start)
                for index, start in grown.items()
            )
        )
        for index, extents in zip(grown, found, strict=True):
            waiting.tail_bytes += sum(map(size_of, extents))
            waiting.counted[index] = extents[-1].end_offset if extents else heads[index].next_offset


def _interval_ms(topic: Topic) -> int:
    """0: as the pipeline has it, also if another version let the topic have settings that this one does not know."""
    try:
        return topic.options.table_commit_interval_ms
    except InvalidSetting:
        return 0
