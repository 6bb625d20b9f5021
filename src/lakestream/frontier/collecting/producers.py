"""Rows of producers that have gone away leave the metadata store, in bounded passes over what may have any."""

from typing import Final
from uuid import UUID

from lakestream.errors import CorruptObject
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.schedule import still_waits
from lakestream.metadata.inserts import Inserts, producers_of
from lakestream.metadata.log.producers import expire_producers
from lakestream.metadata.topics.list import Topic, Topics

_PARTITIONS_AT_ONCE: Final = 200


class Expiry:
    """Goes through the partitions once in a while; a pass looks at some of them, the next goes on behind. A topic in
    which nothing was left is not looked at again until somebody appends to it. What it remembers only saves work."""

    def __init__(self, lake: Lake, topics: Topics) -> None:
        self._lake = lake
        self._topics = topics
        self._left: list[Topic] = []
        self._clean: set[UUID] = set()
        self._cleared_ms: int | None = None
        """When all topics were last taken for unclean: a touch may be lost."""
        self._began_ms: int | None = None

    def touched(self, topic_ids: frozenset[UUID] | None) -> None:
        """Somebody has appended to these; None: to any."""
        self._clean = set() if topic_ids is None else self._clean - topic_ids

    async def expire(self) -> int:
        """How many rows went."""
        settings, now_ms = self._lake.settings, self._lake.runtime.clock.now_ms()
        if not self._left:
            if self._began_ms is not None and still_waits(now_ms, self._began_ms, settings.producer_check_interval_ms):
                return 0
            self._began_ms = now_ms
            listed = await self._topics.list()
            if self._cleared_ms is None or not still_waits(now_ms, self._cleared_ms, settings.producer_expiration_ms):
                self._cleared_ms = now_ms
                self._clean.clear()
            self._clean &= {topic.topic_id for topic in listed}
            self._left = [topic for topic in reversed(listed) if topic.topic_id not in self._clean]
        expired = looked_at = 0
        # Whoever resumes an insert has to find what of it was appended, however long ago.
        kept = producers_of(await Inserts(self._lake.store).live()) if self._left else frozenset()
        while self._left and looked_at < _PARTITIONS_AT_ONCE:
            topic = self._left.pop()
            looked_at += topic.partitions
            count, is_clean = await self._expire(topic, now_ms, kept)
            expired += count
            if is_clean:
                self._clean.add(topic.topic_id)
        return expired

    async def _expire(self, topic: Topic, now_ms: int, kept: frozenset[int]) -> tuple[int, bool]:
        """How many rows went, and whether none is left."""
        expired, is_clean = 0, True
        for partition in topic.each_partition():
            try:
                done = await expire_producers(
                    self._lake.store,
                    partition,
                    now_ms=now_ms,
                    expiration_ms=self._lake.settings.producer_expiration_ms,
                    kept=kept,
                )
            except CorruptObject:
                # Whoever appends or reads there says so.
                is_clean = False
                continue
            expired, is_clean = expired + done.gone, is_clean and not done.left
        return expired, is_clean
