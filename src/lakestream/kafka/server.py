"""The Kafka door of a broker: listens, hands connections out, and closes in order."""

import asyncio
import logging
from contextlib import suppress

from lakestream.coordination.groups import Groups
from lakestream.kafka.allocator import keep_freed_memory
from lakestream.kafka.apis.api import Door
from lakestream.kafka.apis.registry import APIS
from lakestream.kafka.connection import Connection
from lakestream.kafka.receiving import Pools
from lakestream.kafka.settings import KafkaSettings
from lakestream.kafka.wire.describing import Descriptions
from lakestream.metrics import KafkaMetrics
from lakestream.stream import MemoryBudget, Streams

log = logging.getLogger(__name__)

_SWEEP_S = 0.5
_CONTROL_SHARE = 4
"""Requests without records may hold, beside those with records, a quarter of what those may."""


class KafkaServer:
    """Serves the Kafka protocol for one broker's streams. Owns the groups' coordinator from `start` to `stop`."""

    def __init__(
        self, streams: Streams, groups: Groups, settings: KafkaSettings, metrics: KafkaMetrics | None = None
    ) -> None:
        control_budget = MemoryBudget(streams.budget.limit_bytes // _CONTROL_SHARE)
        self._door = Door(
            streams,
            groups,
            settings,
            APIS,
            Descriptions(),
            Pools(settings.receive_bytes),
            control_budget,
            metrics or KafkaMetrics(),
        )
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self.port = 0
        """The port in use, once started."""

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int) -> None:
        """Listens; port 0 takes a free one. Raises OSError when the address is in use."""
        keep_freed_memory()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._door, self._connections), host, port, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        await self._door.groups.start()
        self._sweeper = loop.create_task(self._sweep())
        log.info("kafka door listens on %s:%d", host, self.port)

    async def stop(self, grace_ms: int = 5_000) -> None:
        """Answers what was taken in, within the grace; gives the groups' leases back."""
        if self._server is None or self._sweeper is None:
            return
        self._server.close()
        self._sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._sweeper
        await self._door.groups.stop()
        for connection in list(self._connections):
            connection.finish()
        if self._connections:
            await asyncio.wait([connection.closed for connection in self._connections], timeout=grace_ms / 1000)
        for connection in list(self._connections):
            connection.abort()
        self._server = None

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            for connection in list(self._connections):
                connection.sweep(loop.time())
            self._door.pools.look(_SWEEP_S)
