"""Rows of producers that have gone away leave the metadata store, in bounded passes over all partitions in turn."""

from typing import Final

from lakestream.errors import CorruptObject
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.schedule import still_waits
from lakestream.metadata.log.producers import expire_producers
from lakestream.metadata.topics.list import Topics
from lakestream.model import StreamPartition

_PARTITIONS_AT_ONCE: Final = 500


class Expiry:
    """Goes through every partition once in a while; a pass looks at some of them, the next goes on behind. What it
    remembers only saves work."""

    def __init__(self, lake: Lake, topics: Topics) -> None:
        self._lake = lake
        self._topics = topics
        self._left: list[StreamPartition] = []
        self._began_ms: int | None = None

    async def expire(self) -> int:
        """How many rows went."""
        settings, now_ms = self._lake.settings, self._lake.runtime.clock.now_ms()
        if not self._left:
            if self._began_ms is not None and still_waits(now_ms, self._began_ms, settings.producer_check_interval_ms):
                return 0
            self._began_ms = now_ms
            self._left = [partition for topic in await self._topics.list() for partition in topic.each_partition()]
        expired = 0
        looked_at, self._left = self._left[:_PARTITIONS_AT_ONCE], self._left[_PARTITIONS_AT_ONCE:]
        for partition in looked_at:
            try:
                expired += await expire_producers(
                    self._lake.store,
                    partition,
                    now_ms=now_ms,
                    expiration_ms=settings.producer_expiration_ms,
                )
            except CorruptObject:
                # Whoever appends or reads there says so.
                continue
        return expired
