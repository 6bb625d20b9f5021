"""The Kafka door of a broker: listens, hands connections out, and closes in order."""

import asyncio
import errno
import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass

from lakestream.coordination.groups import Groups
from lakestream.coordination.shares import ShareGroups
from lakestream.coordination.transactions import Transactions
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
_BACKLOG = 1024
_CONTROL_SHARE = 4
"""Requests without records may hold, beside those with records, a quarter of what those may."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Sockets that take calls, which wait until a server serves them. Nobody else can listen there."""

    host: str
    port: int
    sockets: tuple[socket.socket, ...]

    def close(self) -> None:
        for each in self.sockets:
            each.close()


async def listen(host: str, port: int) -> Listener:
    """Port 0 takes a free one. Raises OSError when the address is in use."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            sockets.append(socket.create_server(address, family=family, backlog=_BACKLOG))
        except OSError as error:
            # `localhost` has an address of IPv6 on machines, too, that do not speak it.
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) and len(found) > 1:
                continue
            for each in sockets:
                each.close()
            raise
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return Listener(host, sockets[0].getsockname()[1], tuple(sockets))


class KafkaServer:
    """Serves the Kafka protocol for one broker's streams. Owns the coordinators from `start` to `stop`."""

    def __init__(
        self,
        streams: Streams,
        groups: Groups,
        transactions: Transactions,
        shares: ShareGroups,
        settings: KafkaSettings,
        metrics: KafkaMetrics | None = None,
    ) -> None:
        control_budget = MemoryBudget(streams.budget.limit_bytes // _CONTROL_SHARE)
        self._door = Door(
            streams,
            groups,
            transactions,
            shares,
            settings,
            APIS,
            Descriptions(),
            Pools(settings.receive_bytes),
            control_budget,
            MemoryBudget(settings.answer_bytes),
            metrics or KafkaMetrics(),
        )
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.Task[None] | None = None
        self.port = 0
        """The port in use, once started."""

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def answer_budget(self) -> MemoryBudget:
        """For answers that clients have not read."""
        return self._door.answer_budget

    async def start(self, listener: Listener) -> None:
        """Serves who calls there, and who has called since it was made."""
        keep_freed_memory()
        loop = asyncio.get_running_loop()
        self.port = listener.port
        for each in listener.sockets:
            server = await loop.create_server(
                lambda: Connection(self._door, self._connections), sock=each, backlog=_BACKLOG
            )
            self._servers.append(server)
        await self._door.groups.start()
        await self._door.transactions.start()
        self._sweeper = loop.create_task(self._sweep())
        log.info("kafka door listens on %s:%d", listener.host, self.port)

    async def stop(self, grace_ms: int = 5_000, handover_ms: int = 0) -> None:
        """Takes no more connections, gives the groups' leases back and, for as long as the handover, tells clients to
        go on at other brokers; then answers what was taken in, within the grace."""
        if self._sweeper is None:
            return
        for server in self._servers:
            server.close()
        self._door.is_withdrawn = handover_ms > 0
        await self._door.shares.stop()
        await self._door.groups.stop()
        await self._door.transactions.stop()
        await self._closed(handover_ms)
        self._sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._sweeper
        for connection in list(self._connections):
            connection.finish()
        await self._closed(grace_ms)
        for connection in list(self._connections):
            connection.abort()
        self._sweeper = None

    async def _closed(self, timeout_ms: int) -> None:
        if self._connections and timeout_ms:
            await asyncio.wait([connection.closed for connection in self._connections], timeout=timeout_ms / 1000)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            for connection in list(self._connections):
                connection.sweep(loop.time())
            self._door.pools.look(_SWEEP_S)
