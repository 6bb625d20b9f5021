"""Oxia for tests: a made-up server that speaks the real protocol on a loopback port, and the real one.

The made-up one breaks on request: before a batch, after any of its writes, or after all of them with the answer lost.
"""

import asyncio
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream
from simulator.oxia import OxiaCore
from xxhash import xxh3_64_intdigest

from lakestream.metadata.stores.oxia.client.calls import SERVICES
from lakestream.metadata.stores.oxia.client.wire import oxia_pb2 as wire
from lakestream.metadata.stores.oxia.service import DeleteKey, Heard, OxiaService, PutKey, Record, Stamp
from support.worlds.processes import HOST, free_ports

OXIA: Final = Path(__file__).resolve().parents[3] / ".cache" / "oxia" / "oxia"


async def _unknown(stream: Stream[Any, Any]) -> None:
    raise GRPCError(Status.UNIMPLEMENTED, "unknown service")


_UNKNOWN: Final = Handler(_unknown, Cardinality.UNARY_STREAM, wire.ShardAssignmentsRequest, wire.ShardAssignments)


@dataclass
class FakeOxia:
    """`tears`: the chance that a request breaks its stream at some point. `skew_ms` is added to its clock."""

    shards: int = 1
    namespace: str = "default"
    service: str = SERVICES[0]
    tears: float = 0.0
    random: Random = field(default_factory=lambda: Random(7))
    skew_ms: int = 0
    is_notifying: bool = True
    requests: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self.cores = [OxiaCore(lambda: int(time.time() * 1000) + self.skew_ms) for _ in range(self.shards)]
        self.is_up = True
        self._serving: set[asyncio.Future[None]] = set()
        self.pauses: list[Callable[[str], Any]] = []
        """Awaited before each write, with its key."""

    @property
    def url(self) -> str:
        return f"oxia://{HOST}:{self.port}/{self.namespace}"

    def core_of(self, partition: str) -> OxiaCore:
        return self.cores[(xxh3_64_intdigest(partition.encode()) & 0xFFFFFFFF) * self.shards >> 32]

    def __mapping__(self) -> dict[str, Handler]:
        one, many = Cardinality.UNARY_STREAM, Cardinality.STREAM_STREAM
        calls = {
            "GetShardAssignments": (self._assign, one, wire.ShardAssignmentsRequest, wire.ShardAssignments),
            "WriteStream": (self._write, many, wire.WriteRequest, wire.WriteResponse),
            "Read": (self._read, one, wire.ReadRequest, wire.ReadResponse),
            "RangeScan": (self._scan, one, wire.RangeScanRequest, wire.RangeScanResponse),
            "GetNotifications": (self._notify, one, wire.NotificationsRequest, wire.NotificationBatch),
        }
        known = {f"/{self.service}/{name}": Handler(self._up(work), *of) for name, (work, *of) in calls.items()}
        return {f"/{name}/GetShardAssignments": _UNKNOWN for name in SERVICES} | known

    def go_down(self) -> None:
        """Ends all that is under way and answers nothing until it is `up` again. What it holds stays."""
        self.is_up = False
        for task in self._serving:
            task.cancel()

    def _up(self, work: Callable[[Stream[Any, Any]], Awaitable[None]]) -> Callable[[Stream[Any, Any]], Awaitable[None]]:
        async def served(stream: Stream[Any, Any]) -> None:
            if not self.is_up:
                raise GRPCError(Status.UNAVAILABLE, "down")
            task = asyncio.ensure_future(work(stream))
            self._serving.add(task)
            try:
                await task
            except asyncio.CancelledError:
                task.cancel()
                if self.is_up:
                    raise
                raise GRPCError(Status.UNAVAILABLE, "down") from None
            finally:
                self._serving.discard(task)

        return served

    async def _assign(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        if request.namespace != self.namespace:
            raise GRPCError(Status.NOT_FOUND, "namespace not found")
        width = (1 << 32) // self.shards
        assignments = [
            wire.ShardAssignment(
                shard=shard,
                leader=f"{HOST}:{self.port}",
                int32_hash_range=wire.Int32HashRange(
                    min_hash_inclusive=shard * width, max_hash_inclusive=(shard + 1) * width - 1
                ),
            )
            for shard in range(self.shards)
        ]
        found = wire.NamespaceShardsAssignment(assignments=assignments, shard_key_router=wire.XXHASH3)
        await stream.send_message(wire.ShardAssignments(namespaces={self.namespace: found}))
        await asyncio.Event().wait()

    async def _write(self, stream: Stream[Any, Any]) -> None:
        assert stream.metadata is not None
        core = self.cores[int(str(stream.metadata["shard-id"]))]
        async for request in stream:
            self.requests += 1
            steps = [*request.puts, *request.deletes]
            torn_at = self.random.randrange(len(steps) + 2) if self.random.random() < self.tears else None
            answer = wire.WriteResponse()
            for number, step in enumerate(steps):
                if number == torn_at:
                    raise GRPCError(Status.UNAVAILABLE, "torn in the middle")
                for pause in self.pauses:
                    await pause(step.key)
                self._do(core, step, answer)
            if torn_at is not None:
                raise GRPCError(Status.UNAVAILABLE, "torn after the last")
            await stream.send_message(answer)

    def _do(self, core: OxiaCore, step: Any, answer: wire.WriteResponse) -> None:
        expected = step.expected_version_id if step.HasField("expected_version_id") else None
        if isinstance(step, wire.DeleteRequest):
            assert expected is not None
            is_done = core.delete(DeleteKey(step.key, expected))
            answer.deletes.append(wire.DeleteResponse(status=wire.OK if is_done else wire.UNEXPECTED_VERSION_ID))
            return
        stamp = core.put(PutKey(step.key, step.value, expected))
        if stamp is None:
            answer.puts.append(wire.PutResponse(status=wire.UNEXPECTED_VERSION_ID))
            return
        version = wire.Version(version_id=stamp.version_id, modified_timestamp=stamp.modified_ms)
        answer.puts.append(wire.PutResponse(version=version))

    async def _read(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        self.requests += 1
        if self.random.random() < self.tears:
            raise GRPCError(Status.UNAVAILABLE, "torn")
        core = self.cores[request.shard]
        # In several parts, as large answers come.
        for start in range(0, len(request.gets), 100):
            answers = []
            for get in request.gets[start : start + 100]:
                following = get.comparison_type == wire.CEILING
                answers.append(_got(core.following(get.key) if following else core.records.get(get.key)))
            await stream.send_message(wire.ReadResponse(gets=answers))

    async def _scan(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        self.requests += 1
        core, position = self.cores[request.shard], request.start_inclusive
        while records := core.scan(position, request.end_exclusive, 50):
            await stream.send_message(wire.RangeScanResponse(records=[_got(record) for record in records]))
            position = records[-1].key + "\0"

    async def _notify(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        if not self.is_notifying:
            raise GRPCError(Status.UNKNOWN, "Invalid grpc-status: '111'")
        core, told = self.cores[request.shard], asyncio.Queue[str]()
        core.listeners.append(told.put_nowait)
        try:
            await stream.send_message(wire.NotificationBatch(shard=request.shard, offset=0))
            offset = 0
            while True:
                key, offset = await told.get(), offset + 1
                entry = wire.NotificationEntry(key=key)
                batch = wire.NotificationBatch(shard=request.shard, offset=offset, notifications=[entry])
                await stream.send_message(batch)
        finally:
            core.listeners.remove(told.put_nowait)


def _got(record: Record | None) -> wire.GetResponse:
    if record is None:
        return wire.GetResponse(status=wire.KEY_NOT_FOUND)
    version = wire.Version(version_id=record.version_id, modified_timestamp=record.modified_ms)
    return wire.GetResponse(version=version, value=record.value, key=record.key)


@asynccontextmanager
async def fake_oxia(fake: FakeOxia) -> AsyncIterator[FakeOxia]:
    """Serves it in this event loop."""
    server, connected = Server([fake]), []
    make = server._protocol_factory

    def kept() -> Any:
        connected.append(make())
        return connected[-1]

    server._protocol_factory = kept  # type: ignore[method-assign]
    await server.start(HOST, fake.port)
    fake.port = server._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    try:
        yield fake
    finally:
        server.close()
        # The library waits for its clients to go.
        for protocol in connected:
            protocol.connection.close()
        await server.wait_closed()
        await asyncio.sleep(0)


@contextmanager
def oxia_thread(fake: FakeOxia) -> Iterator[FakeOxia]:
    """Serves it in a thread of its own, for other processes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="made-up Oxia")
    thread.start()
    serving = fake_oxia(fake)
    try:
        yield asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(10)
    finally:
        try:
            asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(30)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()


def oxia_program() -> str | None:
    return str(OXIA) if OXIA.exists() else None


@contextmanager
def real_oxia(program: str, *, shards: int = 1) -> Iterator[str]:
    """The URL of a server of its own. Of this version a shard takes one writer at a time: see docs/OPERATIONS.md."""
    port = free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "standalone", "-p", f"{HOST}:{port}", "-m", f"{HOST}:{port + 1}", "-s", str(shards)]
        command += ["--data-dir", f"{folder}/data", "--wal-dir", f"{folder}/wal"]
        with open(f"{folder}/log", "wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _await_port(port, server)
            yield f"oxia://{HOST}:{port}/default"
        finally:
            server.terminate()
            server.wait(30)


def _await_port(port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert server.poll() is None, "Oxia did not start"
        with suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("Oxia does not listen")


class Apart:
    """An Oxia of one's own on a server that others use too: every key begins with a name of its own."""

    def __init__(self, service: OxiaService, name: str) -> None:
        self._service = service
        self._name = name

    async def put(self, partition: str, puts: Sequence[PutKey]) -> list[Stamp | None]:
        return await self._service.put(self._name + partition, [put._replace(key=self._name + put.key) for put in puts])

    async def delete(self, partition: str, deletes: Sequence[DeleteKey]) -> list[bool]:
        own = [delete._replace(key=self._name + delete.key) for delete in deletes]
        return await self._service.delete(self._name + partition, own)

    async def read(self, partition: str, keys: Sequence[str]) -> list[Record | None]:
        found = await self._service.read(self._name + partition, [self._name + key for key in keys])
        return [record and self._own(record) for record in found]

    async def following(self, places: Sequence[tuple[str, str]]) -> list[Record | None]:
        found = await self._service.following([(self._name + part, self._name + key) for part, key in places])
        return [self._own(record) if record and record.key.startswith(self._name) else None for record in found]

    async def scan(self, partition: str, start: str, end: str, *, limit: int | None = None) -> list[Record]:
        bounds = (self._name + start, self._name + end)
        return [self._own(found) for found in await self._service.scan(self._name + partition, *bounds, limit=limit)]

    async def scan_all(self, start: str, end: str) -> list[Record]:
        found = await self._service.scan_all(self._name + start, self._name + end)
        return [self._own(record) for record in found]

    def listen(self, heard: Heard) -> None:
        def own(keys: Sequence[str] | None) -> None:
            heard(keys and [key[len(self._name) :] for key in keys if key.startswith(self._name)])

        self._service.listen(own)

    async def close(self) -> None:
        await self._service.close()

    def _own(self, record: Record) -> Record:
        return record._replace(key=record.key[len(self._name) :])
