"""Writes and reads of many callers as few requests: what comes while a request is under way goes into the next one.

Writes of one Oxia shard go through one stream, in order; a few requests may be under way. When the stream breaks, all
that was sent and not answered is unknown.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from grpclib.client import Stream

from lakestream.errors import LakestreamError, Unavailable
from lakestream.metadata.stores.oxia.client.calls import errors_translated
from lakestream.metadata.stores.oxia.client.connections import Connections
from lakestream.metadata.stores.oxia.client.wire import oxia_pb2 as wire
from lakestream.metadata.stores.oxia.service import Record

T = TypeVar("T")
_Stream = Stream[wire.WriteRequest, wire.WriteResponse]

TIMEOUT_S: Final = 10.0
MAX_BATCH_BYTES: Final = 1 << 20
MAX_BATCH: Final = 1000
UNDER_WAY: Final = 4


class WriteAnswer(NamedTuple):
    puts: Sequence[wire.PutResponse]
    deletes: Sequence[wire.DeleteResponse]


class _Write(NamedTuple):
    puts: Sequence[wire.PutRequest]
    deletes: Sequence[wire.DeleteRequest]
    answer: asyncio.Future[WriteAnswer]


class WriteStream:
    """Of one Oxia shard."""

    def __init__(self, connections: Connections, shard: int) -> None:
        self._connections = connections
        self._shard = shard
        self._waiting: deque[_Write] = deque()
        self._sent: deque[list[_Write]] = deque()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def write(
        self, puts: Sequence[wire.PutRequest] = (), deletes: Sequence[wire.DeleteRequest] = ()
    ) -> WriteAnswer:
        answer: asyncio.Future[WriteAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(puts, deletes, answer))
        self._woken.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await answer
        except TimeoutError as error:
            self.reset()
            place = self._connections.place
            raise Unavailable(f"{place} did not answer in time, the outcome is unknown") from error

    def reset(self) -> None:
        """Ends the stream: the next write opens another, with the leader of then."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.reset()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        error: LakestreamError = Unavailable(f"{self._connections.place}: the stream of writes was ended")
        try:
            with errors_translated(self._connections.place):
                leader = self._connections.leader(self._shard)
                metadata = {"namespace": self._connections.namespace, "shard-id": str(self._shard)}
                async with leader.write.open(metadata=metadata) as stream:
                    await stream.send_request()
                    receiving = asyncio.get_running_loop().create_task(self._receive(stream))
                    try:
                        await self._send(stream, receiving)
                    finally:
                        receiving.cancel()
                        await asyncio.wait([receiving])
        except LakestreamError as found:
            error = found
        finally:
            unknown = [write for batch in self._sent for write in batch] + list(self._waiting)
            self._sent.clear()
            self._waiting.clear()
            for write in unknown:
                if not write.answer.done():
                    write.answer.set_exception(error)

    async def _send(self, stream: _Stream, receiving: asyncio.Task[None]) -> None:
        receiving.add_done_callback(lambda _: self._woken.set())
        while not receiving.done():
            self._woken.clear()
            if not self._waiting or len(self._sent) >= UNDER_WAY:
                await self._woken.wait()
                continue
            batch = self._next_batch()
            if not batch:
                continue
            self._sent.append(batch)
            puts = [put for write in batch for put in write.puts]
            deletes = [delete for write in batch for delete in write.deletes]
            await stream.send_message(wire.WriteRequest(shard=self._shard, puts=puts, deletes=deletes))
        receiving.result()
        raise Unavailable(f"{self._connections.place} ended the stream of writes, the outcome is unknown")

    async def _receive(self, stream: _Stream) -> None:
        async for answer in stream:
            puts, deletes = list(answer.puts), list(answer.deletes)
            for write in self._sent.popleft():
                own = WriteAnswer(puts[: len(write.puts)], deletes[: len(write.deletes)])
                del puts[: len(write.puts)], deletes[: len(write.deletes)]
                if not write.answer.done():
                    write.answer.set_result(own)
            self._woken.set()

    def _next_batch(self) -> list[_Write]:
        batch, size, count = [], 0, 0
        while self._waiting and count < MAX_BATCH and size < MAX_BATCH_BYTES:
            write = self._waiting.popleft()
            if write.answer.done():
                continue  # its caller has given up
            batch.append(write)
            count += len(write.puts) + len(write.deletes)
            size += sum(len(put.value) for put in write.puts)
        return batch


class _Read(NamedTuple):
    gets: Sequence[wire.GetRequest]
    answer: asyncio.Future[list[Record | None]]


class Reads:
    """Of one Oxia shard."""

    def __init__(self, connections: Connections, shard: int) -> None:
        self._connections = connections
        self._shard = shard
        self._waiting: list[_Read] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, gets: Sequence[wire.GetRequest]) -> list[Record | None]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Record | None]] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._start)
        self._waiting.append(_Read(gets, answer))
        return await answer

    def _start(self) -> None:
        """What was asked for in the same turn of the loop goes together."""
        reads, self._waiting = self._waiting, []
        task = asyncio.get_running_loop().create_task(self._run(reads))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, reads: Sequence[_Read]) -> None:
        gets = [get for read in reads for get in read.gets]
        try:
            found = []
            for start in range(0, len(gets), MAX_BATCH):
                found += await self._ask(gets[start : start + MAX_BATCH])
        except LakestreamError as error:
            for read in reads:
                if not read.answer.done():
                    read.answer.set_exception(error)
            return
        start = 0
        for read in reads:
            if not read.answer.done():
                read.answer.set_result(found[start : start + len(read.gets)])
            start += len(read.gets)

    async def _ask(self, gets: Sequence[wire.GetRequest]) -> list[Record | None]:
        leader = self._connections.leader(self._shard)
        with errors_translated(self._connections.place):
            async with asyncio.timeout(TIMEOUT_S):
                answers = await leader.read(wire.ReadRequest(shard=self._shard, gets=gets))
        found = [answer for part in answers for answer in part.gets]
        if len(found) != len(gets):
            raise Unavailable(f"{self._connections.place} answered {len(found)} of {len(gets)} reads")
        return [record_of(answer, get.key) for answer, get in zip(found, gets, strict=True)]


def record_of(answer: wire.GetResponse, key: str) -> Record | None:
    if answer.status != wire.OK:
        return None
    found = answer.key if answer.HasField("key") else key
    return Record(found, answer.value, answer.version.version_id, answer.version.modified_timestamp)


Made = Callable[[Connections, int], T]


class PerShard(dict[int, T]):
    """One for each Oxia shard, made when it is first asked for."""

    def __init__(self, connections: Connections, make: Made[T]) -> None:
        super().__init__()
        self._connections = connections
        self._make = make

    def __missing__(self, shard: int) -> T:
        made = self[shard] = self._make(self._connections, shard)
        return made
