"""The HTTP door of the simulation: engines load the table, and it is brought up to date for them."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lakestream.errors import LakestreamError
from lakestream.frontier.moving.fresh import Freshener, Freshness
from lakestream.frontier.settings import FreshSettings
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition
from simulator.world import Process

if TYPE_CHECKING:
    from simulator.history import History

DOORS: Final = (11, 10)
"""In every so many histories, those with this remainder, engines load the table. Not drawn: what all others play stays
the same."""


class FreshenerActor:
    """A door that crashes, sleeps and comes back, and engines that poll it now and then. It takes no lease and knows
    nothing of the pipelines beside it; a small limit lets it take a first part only of what they have planned."""

    def __init__(self, history: "History") -> None:
        self._history = history

    async def live(self) -> None:
        world = self._history.world
        while True:
            process = world.process("door")
            crashed = asyncio.Event()
            process.on_crash = crashed.set
            process.start(self._serve(process))
            await crashed.wait()
            await asyncio.sleep(world.random.uniform(0.01, 1.5))

    async def _serve(self, process: Process) -> None:
        history, world = self._history, self._history.world
        runtime = process.runtime()
        settings = FreshSettings(
            wait_ms=world.random.choice((50, 2_000)),
            max_bytes=world.random.choice((100, 1 << 20)),
            backoff_ms=50,
            max_backoff_ms=200,
        )
        freshener = Freshener(history.lake(runtime, settings.pipeline()), Topics(history.store, runtime), settings)
        ends: deque[tuple[float, dict[StreamPartition, int]]] = deque()
        while True:
            topic = history.topic
            if topic is not None:
                ends.append((world.loop.now_s, self._ends(topic)))
                while len(ends) > 1 and ends[1][0] <= world.loop.now_s - topic.options.table_freshness_ms / 1000:
                    ends.popleft()
                asked_s = world.loop.now_s
                with suppress(LakestreamError):
                    told = await freshener.freshen(topic.topic_id)
                    world.trace(f"door loads the table: {told.value}")
                    if told is Freshness.FRESH and ends[0][0] <= asked_s - topic.options.table_freshness_ms / 1000:
                        self._check(topic, ends[0][1])
            await asyncio.sleep(world.random.uniform(0.05, 0.8))

    def _ends(self, topic: Topic) -> dict[StreamPartition, int]:
        """Behind the last record of each partition that anybody had an answer for."""
        acked = self._history.auditor.acked
        return {partition: max(acked.get(partition, ()), default=-1) + 1 for partition in topic.each_partition()}

    def _check(self, topic: Topic, ends: dict[StreamPartition, int]) -> None:
        """What was acknowledged so long ago is in the table of which an engine is told that it is fresh."""
        mine = {partition: end for partition, end in ends.items() if partition.topic_id == topic.topic_id and end}
        if not mine or self._history.topic is None or self._history.topic.topic_id != topic.topic_id:
            return
        frontier = self._history.watcher.view(topic.topic_id).frontier
        for partition, end in mine.items():
            if frontier[partition.index] < end:
                self._history.auditor.fail(
                    f"I5: the table that an engine is told is fresh ends at {frontier[partition.index]}; all below"
                    f" {end} of partition {partition.index} was acknowledged long before"
                )
