"""Where Oxia's shards are: the assignments that it streams, and a channel to each server that leads one."""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from grpclib.client import Channel
from xxhash import xxh3_64_intdigest

from lakestream.errors import LakestreamError, RequestError, Unavailable
from lakestream.metadata.stores.oxia.client.address import OxiaAddress
from lakestream.metadata.stores.oxia.client.calls import (
    LOST,
    SERVICES,
    Calls,
    errors_translated,
    is_unknown_service,
    opening_error,
)
from lakestream.metadata.stores.oxia.client.wire import oxia_pb2 as wire
from lakestream.runtime import parse_host_port

log = logging.getLogger(__name__)

OPEN_TIMEOUT_S: Final = 10.0
RECONNECT_S: Final = (0.05, 2.0)


class _Shards(NamedTuple):
    """`bounds`: the lowest hash of each shard, in order."""

    bounds: tuple[int, ...]
    numbers: tuple[int, ...]
    leaders: dict[int, str]


class Connections:
    """Made by `connect`. Belongs to one event loop."""

    def __init__(self, address: OxiaAddress, service: str, shards: _Shards) -> None:
        self._address = address
        self._service = service
        self._shards = shards
        self._channels: dict[str, Calls] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def place(self) -> str:
        return self._address.place

    @property
    def namespace(self) -> str:
        return self._address.namespace

    def shard_of(self, partition: str) -> int:
        """By the lower half of xxh3, as Oxia's own clients route."""
        shards = self._shards
        hashed = xxh3_64_intdigest(partition.encode()) & 0xFFFFFFFF
        return shards.numbers[bisect_right(shards.bounds, hashed) - 1]

    def shards(self) -> list[int]:
        return list(self._shards.numbers)

    def leader(self, shard: int) -> Calls:
        """Raises `Unavailable` while it has none."""
        name = self._shards.leaders.get(shard, "")
        calls = self._channels.get(name)
        if calls is None:
            try:
                host, port = parse_host_port(name)
            except ValueError as error:
                raise Unavailable(f"{self.place}: shard {shard} has no leader; nothing was written") from error
            calls = self._channels[name] = Calls(Channel(host, port), self._service)
        return calls

    def follow(self, changed: Callable[[], None]) -> None:
        """Keeps the assignments up to date from now on, and says when they were changed."""
        self._task = asyncio.get_running_loop().create_task(self._follow(changed))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for calls in self._channels.values():
            calls.channel.close()

    async def _follow(self, changed: Callable[[], None]) -> None:
        pause_s, turn = RECONNECT_S[0], 0
        while True:
            server = self._address.servers[turn % len(self._address.servers)]
            turn += 1
            channel = Channel(*server)
            try:
                with errors_translated(self.place):
                    async with Calls(channel, self._service).assignments.open() as stream:
                        await stream.send_message(wire.ShardAssignmentsRequest(namespace=self.namespace), end=True)
                        async for message in stream:
                            shards = _shards_of(message, self.namespace)
                            pause_s = RECONNECT_S[0]
                            if shards != self._shards:
                                self._shards = shards
                                changed()
            except LakestreamError as error:
                log.warning("no news of Oxia's shards for the moment: %s", error)
            finally:
                channel.close()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RECONNECT_S[1])


async def connect(address: OxiaAddress) -> Connections:
    """Asks the servers in turn. Raises `RequestError` for what must be mended, `Unavailable` if none answers."""
    last: LakestreamError = Unavailable(f"{address.place} cannot be reached")
    for server in address.servers:
        for service in SERVICES:
            channel = Channel(*server)
            try:
                async with asyncio.timeout(OPEN_TIMEOUT_S):
                    async with Calls(channel, service).assignments.open() as stream:
                        await stream.send_message(wire.ShardAssignmentsRequest(namespace=address.namespace), end=True)
                        message = await stream.recv_message()
                        await stream.cancel()
                if message is None:
                    raise Unavailable(f"{address.place} says nothing of its shards")
                return Connections(address, service, _shards_of(message, address.namespace))
            except LOST as error:
                last = opening_error(address.place, address.namespace, error)
                if not is_unknown_service(error):
                    break
            finally:
                channel.close()
    raise last


def _shards_of(message: wire.ShardAssignments, namespace: str) -> _Shards:
    found = message.namespaces.get(namespace)
    if found is None or not found.assignments:
        raise Unavailable(f"Oxia says nothing of the shards of namespace {namespace!r}")
    if found.shard_key_router != wire.XXHASH3 or any(
        a.WhichOneof("shard_boundaries") != "int32_hash_range" for a in found.assignments
    ):
        raise RequestError("this Oxia places keys in a way that lakestream does not know: use another version")
    ordered = sorted(found.assignments, key=lambda assignment: assignment.int32_hash_range.min_hash_inclusive)
    bounds = tuple(assignment.int32_hash_range.min_hash_inclusive for assignment in ordered)
    if bounds[0] != 0:
        raise Unavailable(f"some shards of namespace {namespace!r} are missing in Oxia")
    return _Shards(bounds, tuple(a.shard for a in ordered), {a.shard: a.leader for a in ordered})
