"""Small real Parquet files, and a real catalog behind a real HTTP door."""

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn
from pyiceberg.io.pyarrow import schema_to_pyarrow
from starlette.types import ASGIApp

from lakestream.access import ALLOW_ALL, Authorizer
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.catalog.engines.tables import EngineTables
from lakestream.errors import Conflict
from lakestream.http import create_app
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topics
from lakestream.model import WrittenFile
from lakestream.objects import ObjectStore
from lakestream.objects.memory import MemoryObjects
from lakestream.runtime import Runtime, system
from lakestream.schemas.registry.registry import SchemaRegistry
from lakestream.table.parquet.metrics import file_metrics
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import RAW
from lakestream.table.view import View

ORDERS = UUID("11111111-1111-4111-8111-111111111111")
OTHER = UUID("22222222-2222-4222-8222-222222222222")

_numbers = count()


def write_file(folder: Path, first: int, end: int, *, partition: int = 0, spec_id: int = 0) -> WrittenFile:
    """One Parquet file with the records [first, end) of a partition; record n has timestamp n seconds, value `v<n>`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{partition}-{first}-{next(_numbers)}.parquet"
    rows = [
        {
            "_stream_partition": partition,
            "_offset": offset,
            "_timestamp": datetime.fromtimestamp(offset, UTC),
            "_timestamp_type": 0,
            "_kind": 0,
            "_key": None,
            "_headers": [],
            "_headers_raw": None,
            "_value": b"v%d" % offset,
            "_schema_id": None,
            "_crc": 7,
        }
        for offset in range(first, end)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema_to_pyarrow(iceberg_schema(RAW), include_field_ids=True)), path)
    return WrittenFile(
        path=f"file://{path}",
        spec_id=spec_id,
        size_bytes=path.stat().st_size,
        record_count=end - first,
        partition_min=partition,
        partition_max=partition,
        offset_min=first,
        offset_max=end - 1,
        timestamp_max_ms=(end - 1) * 1000,
        metrics=file_metrics(pq.read_metadata(path), RAW),
    )


@dataclass
class Door:
    """A catalog and its HTTP door, on an event loop of their own."""

    uri: str
    tables: PyIcebergTables
    folder: Path
    loop: asyncio.AbstractEventLoop

    def create(self, topic_id: UUID = ORDERS, name: str = "orders", partitions: int = 1) -> View:
        return asyncio.run_coroutine_threadsafe(self.tables.create(topic_id, name, partitions), self.loop).result(60)

    def load(self, topic_id: UUID = ORDERS) -> View:
        return asyncio.run_coroutine_threadsafe(self.tables.load(topic_id), self.loop).result(60)

    def append(self, count: int, *, partition: int = 0, topic_id: UUID = ORDERS, spec_id: int = 1) -> View:
        """Commits the next `count` records of a partition, on a fresh view until nobody else comes first."""
        work = self._append(count, partition, topic_id, spec_id)
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    async def _append(self, count: int, partition: int, topic_id: UUID, spec_id: int) -> View:
        while True:
            view = await self.tables.load(topic_id)
            start = view.frontier[partition]
            folder = Path(view.location.removeprefix("file://")) / "data"
            file = write_file(folder, start, start + count, partition=partition, spec_id=spec_id)
            frontier = (*view.frontier[:partition], start + count, *view.frontier[partition + 1 :])
            try:
                return await self.tables.commit(view, add=[file], remove=[], frontier=frontier)
            except Conflict:
                continue

    @contextmanager
    def appending(self, *, interval_s: float = 0.4) -> Iterator[None]:
        """Appends a record at a time, all the while the block runs, and at least one."""
        stop = threading.Event()

        def work() -> None:
            self.append(1)
            while not stop.wait(interval_s):
                self.append(1)

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(work)
            try:
                yield
            finally:
                stop.set()
            working.result(60)

    def detach(self, topic_id: UUID = ORDERS) -> str | None:
        return asyncio.run_coroutine_threadsafe(self.tables.detach(topic_id), self.loop).result(60)


def catalog_of(
    tables: EngineTables, authorizer: Authorizer = ALLOW_ALL, objects: ObjectStore | None = None
) -> EngineCatalog:
    """`objects`: where the registry keeps its schemas, if that matters."""
    store, runtime = tables.commits.pointers._store, tables.commits.runtime
    registry = SchemaRegistry(store, objects or MemoryObjects(runtime.clock), runtime, authorizer)
    return EngineCatalog(tables, Topics(store, runtime), authorizer, registry)


@contextmanager
def open_door(
    folder: Path, guard: Callable[[ASGIApp], ASGIApp] = lambda app: app, *, locations: Sequence[str] = ()
) -> Iterator[Door]:
    """Serves on a free loopback port until the block ends; `guard` stands in front of it, and `locations` are allowed
    beside its own warehouse."""
    runtime = Runtime(system().clock, random.Random(3))
    listener = socket.create_server(("127.0.0.1", 0))
    uri = f"http://127.0.0.1:{listener.getsockname()[1]}/iceberg"
    opened: Future[tuple[Door, uvicorn.Server]] = Future()

    async def serve() -> None:
        tables = PyIcebergTables(MemoryStore(runtime), f"file://{folder}/bucket", runtime)
        app = guard(create_app(catalog_of(EngineTables(tables.commits, f"file://{folder}/bucket", locations))))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1))
        opened.set_result((Door(uri, tables, folder, asyncio.get_running_loop()), server))
        try:
            await server.serve(sockets=[listener])
        finally:
            await tables.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    door, server = opened.result(30)
    try:
        yield door
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
