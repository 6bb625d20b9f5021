"""Which topics a tick looks at: those that brokers told of, those that are not caught up yet, and some of the others in
turn, so that none goes unseen for long whatever the feed left out.

State kept here is advice only: a worker that starts anew looks at everything.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lakestream.frontier.moving.schedule import still_waits
from lakestream.metadata.feed import TOUCH_MS, Feed
from lakestream.metadata.topics.list import Topic

LINGER_MS: Final = 1_000
"""For so long after a touch a topic is looked at even if it has caught up: every tick looks at a busy one, however late
brokers announce it."""
_AHEAD: Final = 0.9
"""The turn of all is done in this part of its time: ticks take time themselves."""


@dataclass(frozen=True, slots=True)
class Look:
    """`topics`: to look at now. `woken`: those of them that had caught up at `caught_up_ms` and were touched since.
    `touched`: all that the feed named; None if it was not read, or has left something out."""

    topics: Sequence[Topic]
    woken: Sequence[UUID] = ()
    caught_up_ms: int = 0
    touched: frozenset[UUID] | None = None


class Watchlist:
    def __init__(self, feed: Feed | None, *, sweep_ms: int) -> None:
        """Without a feed every look is at all topics. With one, each topic is looked at within `sweep_ms`."""
        self._feed = feed
        self._sweep_ms = sweep_ms
        self._topics: Sequence[Topic] = ()
        self._by_id: dict[UUID, Topic] = {}
        self._open: dict[UUID, int] = {}
        """Topics to look at, and when they were last touched (0: unknown)."""
        self._looked_ms: int | None = None
        self._swept = ""
        self._owed = 0.0

    def relist(self, topics: Sequence[Topic]) -> None:
        """These are the topics now. New ones are looked at."""
        by_id = {topic.topic_id: topic for topic in topics}
        new = {topic_id: 0 for topic_id in by_id if topic_id not in self._by_id}
        self._open = {topic_id: ms for topic_id, ms in self._open.items() if topic_id in by_id} | new
        self._topics, self._by_id = topics, by_id

    async def look(self, now_ms: int) -> Look:
        """What to look at, by heads that are read after this."""
        if self._feed is None:
            return Look(self._topics)
        changes = await self._feed.read()
        touched = [topic_id for topic_id in sorted(changes.topics) if topic_id in self._by_id]
        woken = [topic_id for topic_id in touched if topic_id not in self._open]
        self._open |= dict.fromkeys(touched, now_ms)
        if not changes.is_complete:
            self._open = dict.fromkeys(self._by_id, 0) | self._open
        turn = {topic.topic_id: topic for topic in self.turn(now_ms)}
        caught_up_ms, self._looked_ms = (self._looked_ms or 0) - TOUCH_MS, now_ms
        topics = {topic_id: self._by_id[topic_id] for topic_id in self._open} | turn
        return Look(list(topics.values()), woken, caught_up_ms, changes.topics if changes.is_complete else None)

    def found_caught_up(self, topic_id: UUID, now_ms: int) -> None:
        if topic_id in self._open and not still_waits(now_ms, self._open[topic_id], LINGER_MS):
            del self._open[topic_id]

    def keep(self, topic_id: UUID) -> None:
        """There is something left to do: the next tick looks again."""
        if topic_id in self._by_id:
            self._open.setdefault(topic_id, 0)

    def turn(self, now_ms: int) -> Sequence[Topic]:
        """Whose turn it is, behind those of the last look."""
        passed_ms = 0 if self._looked_ms is None else max(0, now_ms - self._looked_ms)
        self._owed = min(float(len(self._topics)), self._owed + len(self._topics) * passed_ms / self._sweep_ms / _AHEAD)
        count = int(self._owed)
        self._owed -= count
        start = bisect_right(self._topics, self._swept, key=lambda topic: topic.name)
        turn = [*self._topics[start : start + count], *self._topics[: max(0, start + count - len(self._topics))]]
        if turn:
            self._swept = turn[-1].name
        return turn
