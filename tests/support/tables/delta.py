"""A Delta log in memory, and a table with a mirror on real files behind a real HTTP door."""

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa
import uvicorn
from deltalake import DeltaTable
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow

from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.mirrored import IcebergSide
from lakestream.errors import Conflict
from lakestream.frontier.delta import DeltaLog, Mirrored, Mirrors
from lakestream.frontier.delta.port import MirrorStep, Shown
from lakestream.frontier.delta.rs import DeltaRs
from lakestream.frontier.moving.tiles.naming import DATA_FOLDER
from lakestream.frontier.settings import PipelineSettings
from lakestream.http import create_app
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.runtime import Runtime, system
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import RAW
from lakestream.table.view import View
from support.tables.files import catalog_of, write_file

T = TypeVar("T")
Rows = list[tuple[int, int, bytes]]
KEYS = ("_stream_partition", "_offset", "_value")
COLUMNS: pa.Schema = schema_to_pyarrow(iceberg_schema(RAW), include_field_ids=False)
CONFIGS = {"lakestream.table.formats": "iceberg,delta"}
OLD_S = 100 * 86_400
SETTINGS = PipelineSettings(backoff_ms=0, max_backoff_ms=0)


class MemoryLog:
    """Implements `DeltaLog`. Keeps every version."""

    def __init__(self) -> None:
        self.versions: dict[str, list[Shown]] = {}

    async def read(self, location: str) -> Shown | None:
        return self.versions[location][-1] if location in self.versions else None

    async def create(self, location: str, name: str, columns: pa.Schema) -> None:
        if location in self.versions:
            raise Conflict(f"the log of {name} is there")
        self.versions[location] = [Shown(0, frozenset(), columns)]

    async def commit(self, location: str, shown: Shown, step: MirrorStep) -> None:
        newest = self.versions[location][-1]
        if newest.log_version != shown.log_version:
            raise Conflict(f"{location} is at {newest.log_version} by now")
        added = {file.path for file in step.add}
        assert not added & newest.paths
        assert set(step.remove) <= newest.paths
        self.versions[location].append(
            replace(
                newest,
                log_version=newest.log_version + 1,
                paths=newest.paths - set(step.remove) | added,
                columns=pa.schema([*newest.columns, *step.columns]),
                snapshot_id=step.snapshot_id,
                metadata_version=step.metadata_version,
            )
        )


class PlainTables:
    """Implements `MirroredTables` for simulated tables. `held` has the snapshot held, by topic."""

    def __init__(self) -> None:
        self.held: dict[UUID, int | None] = {}

    async def columns(self, view: View) -> pa.Schema:
        return COLUMNS

    async def hold(self, topic_id: UUID, snapshot_id: int | None) -> None:
        self.held[topic_id] = snapshot_id


@dataclass
class Scene:
    """A mirrored topic, its table, its mirror and the catalog's door."""

    uri: str
    tables: PyIcebergTables
    topics: Topics
    topic: Topic
    delta: DeltaRs
    loop: asyncio.AbstractEventLoop

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(wait(), self.loop).result(120)

    @property
    def view(self) -> View:
        return self.run(self.tables.load(self.topic.topic_id))

    @property
    def folder(self) -> Path:
        return Path(self.view.location.removeprefix("file://"))

    def mirrors(self, log: DeltaLog | None = None) -> Mirrors:
        """Those of a fresh process."""
        side = IcebergSide(self.tables.commits)
        return Mirrors(self.tables, side, log or self.delta, self.topics, system(), SETTINGS)

    def mirror(self, mirrors: Mirrors | None = None) -> Mirrored:
        return self.run((mirrors or self.mirrors()).mirror())

    def append(self, count: int, *, partition: int = 0) -> View:
        view = self.view
        start = view.frontier[partition]
        file = write_file(self.folder / DATA_FOLDER, start, start + count, partition=partition, spec_id=1)
        frontier = (*view.frontier[:partition], start + count, *view.frontier[partition + 1 :])
        return self.run(self.tables.commit(view, add=[file], remove=[], frontier=frontier))

    def replace(self) -> View:
        """One file in the place of all of partition 0."""
        view = self.view
        file = write_file(self.folder / DATA_FOLDER, 0, view.frontier[0], spec_id=1)
        gone = [live for live in view.files if live.partition_max == 0]
        return self.run(self.tables.commit(view, add=[file], remove=gone, frontier=view.frontier))

    def engine(self) -> RestCatalog:
        return RestCatalog("lake", uri=self.uri)

    def rows(self, snapshot_id: int | None = None) -> Rows:
        """Of the Iceberg side, as an engine reads it."""
        with self.engine() as catalog:
            scan = catalog.load_table("default.orders").scan(selected_fields=KEYS, snapshot_id=snapshot_id)
            return tuples(scan.to_arrow())


def tuples(table: pa.Table) -> Rows:
    return sorted(tuple(row[key] for key in KEYS) for row in table.select(KEYS).to_pylist())


def expected(*ends: int) -> Rows:
    """Of a table whose partitions end there."""
    return [(partition, offset, b"v%d" % offset) for partition, end in enumerate(ends) for offset in range(end)]


def delta_rs(folder: Path) -> Rows:
    """Of the mirror."""
    return tuples(DeltaTable(folder).to_pyarrow_table(columns=list(KEYS)))


def age(folder: Path) -> None:
    """Everything under the table was written long ago."""
    then = time.time() - OLD_S
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


@contextmanager
def scene(folder: Path, bucket_url: str | None = None, **storage_options: str) -> Iterator[Scene]:
    runtime = Runtime(system().clock, random.Random(3))
    listener = socket.create_server(("127.0.0.1", 0))
    uri = f"http://127.0.0.1:{listener.getsockname()[1]}/iceberg"
    opened: Future[tuple[Scene, Callable[[], Any]]] = Future()

    async def serve() -> None:
        store = MemoryStore(runtime)
        topics = Topics(store, runtime)
        tables = PyIcebergTables(store, bucket_url or f"file://{folder}/bucket", runtime)
        topic = await topics.create("orders", 2, CONFIGS)
        await tables.create(topic.topic_id, topic.name, topic.partitions)
        delta = DeltaRs(storage_options)
        app = create_app(catalog_of(tables.engines))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1))
        made = Scene(uri, tables, topics, topic, delta, asyncio.get_running_loop())
        opened.set_result((made, lambda: setattr(server, "should_exit", True)))
        try:
            await server.serve(sockets=[listener])
        finally:
            delta.close()
            await tables.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    made, stop = opened.result(60)
    try:
        yield made
    finally:
        stop()
        thread.join(30)
        listener.close()
