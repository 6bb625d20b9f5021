"""A small client of Oxia's gRPC service. Implements `OxiaService`."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from grpclib.exceptions import GRPCError

from lakestream.errors import RequestError, Unavailable
from lakestream.metadata.stores.oxia.client.address import address_of
from lakestream.metadata.stores.oxia.client.batching import TIMEOUT_S, PerShard, Reads, WriteStream, record_of
from lakestream.metadata.stores.oxia.client.calls import LOST, code_of, errors_translated
from lakestream.metadata.stores.oxia.client.connections import RECONNECT_S, Connections, connect
from lakestream.metadata.stores.oxia.client.wire import oxia_pb2 as wire
from lakestream.metadata.stores.oxia.keys import FORMAT
from lakestream.metadata.stores.oxia.service import NO_VERSION, DeleteKey, Heard, PutKey, Record, Stamp
from lakestream.metadata.stores.oxia.store import OxiaStore
from lakestream.runtime import Runtime

log = logging.getLogger(__name__)

STORED_FORMAT: Final = b"lakestream 1"
NOTIFICATIONS_NOT_ENABLED: Final = 111
READ_ATTEMPTS: Final = 3


async def open_oxia(url: str, runtime: Runtime) -> OxiaStore:
    """Opens the store in a namespace, which must be there. Belongs to the running event loop."""
    client = OxiaClient(await connect(address_of(url)))
    try:
        await _check_format(client)
    except BaseException:
        await client.close()
        raise
    return OxiaStore(client, runtime)


async def _check_format(client: "OxiaClient") -> None:
    [record] = await client.read(FORMAT, [FORMAT])
    if record is None:
        await client.put(FORMAT, [PutKey(FORMAT, STORED_FORMAT, NO_VERSION)])
        [record] = await client.read(FORMAT, [FORMAT])
    if record is None or record.value != STORED_FORMAT:
        found = "nothing" if record is None else repr(record.value.decode(errors="replace")[:40])
        raise RequestError(
            f"{client.place} holds data of another version of lakestream, or of another program ({found}, not"
            f" {STORED_FORMAT.decode()!r}): use that version, or another namespace"
        )


class OxiaClient:
    """Belongs to one event loop."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._writes = PerShard(connections, WriteStream)
        self._reads = PerShard(connections, Reads)
        self._listeners: dict[int, asyncio.Task[None]] = {}
        self._heard: Heard | None = None
        connections.follow(self._moved)

    @property
    def place(self) -> str:
        return self._connections.place

    async def put(self, partition: str, puts: Sequence[PutKey]) -> list[Stamp | None]:
        if not puts:
            return []
        requests = [
            wire.PutRequest(key=put.key, value=put.value, expected_version_id=put.expected, partition_key=partition)
            for put in puts
        ]
        written = await self._writes[self._connections.shard_of(partition)].write(puts=requests)
        return [_stamp(answer) for answer in written.puts]

    async def delete(self, partition: str, deletes: Sequence[DeleteKey]) -> list[bool]:
        if not deletes:
            return []
        requests = [
            wire.DeleteRequest(key=delete.key, expected_version_id=delete.expected, partition_key=partition)
            for delete in deletes
        ]
        written = await self._writes[self._connections.shard_of(partition)].write(deletes=requests)
        return [answer.status == wire.OK for answer in written.deletes]

    async def read(self, partition: str, keys: Sequence[str]) -> list[Record | None]:
        return await self._get(partition, [wire.GetRequest(key=key, include_value=True) for key in keys])

    async def following(self, places: Sequence[tuple[str, str]]) -> list[Record | None]:
        asked = [
            self._get(partition, [wire.GetRequest(key=key, include_value=True, comparison_type=wire.CEILING)])
            for partition, key in places
        ]
        return [record for (record,) in await asyncio.gather(*asked)]

    async def scan(self, partition: str, start: str, end: str, *, limit: int | None = None) -> list[Record]:
        return await self._scan(self._connections.shard_of(partition), start, end, limit)

    async def scan_all(self, start: str, end: str) -> list[Record]:
        parts = await asyncio.gather(*(self._scan(shard, start, end, None) for shard in self._connections.shards()))
        return [record for part in parts for record in part]

    def listen(self, heard: Heard) -> None:
        self._heard = heard
        self._moved()

    async def close(self) -> None:
        for task in self._listeners.values():
            task.cancel()
        if self._listeners:
            await asyncio.wait(self._listeners.values())
        for stream in self._writes.values():
            await stream.close()
        await self._connections.close()

    async def _get(self, partition: str, gets: Sequence[wire.GetRequest]) -> list[Record | None]:
        for attempt in range(1, READ_ATTEMPTS):
            with suppress(Unavailable):
                return await self._reads[self._connections.shard_of(partition)].read(gets)
            await asyncio.sleep(RECONNECT_S[0] * attempt)
        return await self._reads[self._connections.shard_of(partition)].read(gets)

    async def _scan(self, shard: int, start: str, end: str, limit: int | None) -> list[Record]:
        for attempt in range(1, READ_ATTEMPTS):
            with suppress(Unavailable):
                return await self._scan_once(shard, start, end, limit)
            await asyncio.sleep(RECONNECT_S[0] * attempt)
        return await self._scan_once(shard, start, end, limit)

    async def _scan_once(self, shard: int, start: str, end: str, limit: int | None) -> list[Record]:
        request = wire.RangeScanRequest(shard=shard, start_inclusive=start, end_exclusive=end)
        found: list[Record] = []
        leader = self._connections.leader(shard)
        with errors_translated(self.place):
            async with asyncio.timeout(TIMEOUT_S):
                async with leader.scan.open() as stream:
                    await stream.send_message(request, end=True)
                    async for answer in stream:
                        found += [r for record in answer.records if (r := record_of(record, "")) is not None]
                        if limit is not None and len(found) >= limit:
                            await stream.cancel()
                            break
        return found[:limit]

    def _moved(self) -> None:
        """Shards are led by others than before, or are others."""
        for stream in self._writes.values():
            stream.reset()
        heard = self._heard
        if heard is None:
            return
        for shard in self._connections.shards():
            if shard not in self._listeners:
                self._listeners[shard] = asyncio.get_running_loop().create_task(self._listen(shard, heard))

    async def _listen(self, shard: int, heard: Heard) -> None:
        pause_s, offset = RECONNECT_S[0], None
        while True:
            try:
                async with self._connections.leader(shard).notifications.open() as stream:
                    request = wire.NotificationsRequest(shard=shard, start_offset_exclusive=offset)
                    await stream.send_message(request, end=True)
                    async for batch in stream:
                        pause_s, offset = RECONNECT_S[0], batch.offset
                        heard([entry.key for entry in batch.notifications])
            except GRPCError as error:
                if code_of(error) == NOTIFICATIONS_NOT_ENABLED:
                    log.warning("%s has no notifications: changes are noticed by looking", self.place)
                    return
                offset = None  # it may be too old
            except (*LOST, Unavailable):
                log.debug("no notifications from %s for the moment", self.place)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RECONNECT_S[1])
            heard(None)


def _stamp(answer: wire.PutResponse) -> Stamp | None:
    if answer.status != wire.OK:
        return None
    return Stamp(answer.version.version_id, answer.version.modified_timestamp)
