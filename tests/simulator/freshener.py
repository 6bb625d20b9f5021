"""The HTTP door of the simulation: engines load the table, and it is brought up to date for them."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from lakestream.errors import LakestreamError
from lakestream.frontier.moving.fresh import Freshener
from lakestream.frontier.settings import FreshSettings
from lakestream.metadata.topics.list import Topics
from simulator.world import Process

if TYPE_CHECKING:
    from simulator.history import History


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
        while True:
            topic = history.topic
            if topic is not None:
                with suppress(LakestreamError):
                    told = await freshener.freshen(topic.topic_id)
                    world.trace(f"door loads the table: {told.value}")
            await asyncio.sleep(world.random.uniform(0.05, 0.8))
