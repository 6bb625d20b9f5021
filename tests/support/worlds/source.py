"""A node for Spark to read from: a real broker, a real catalog door, and a pipeline that moves when told."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lakestream.access import ALLOW_ALL
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.http import create_app
from lakestream.metadata.topics.list import Topics
from lakestream.node.storage.backends import Backends, open_backends
from lakestream.node.storage.schemas import make_schemas
from lakestream.node.storage.tables import make_engines, open_catalog
from lakestream.schemas.registry.registry import SchemaRegistry
from lakestream.settings import load
from support.tables.files import catalog_of
from support.worlds.embedded import embedded

BASE_MS = 1_700_000_000_000


@dataclass
class Node:
    bootstrap: str
    uri: str
    backends: Backends
    lake: Lake
    loop: asyncio.AbstractEventLoop

    @property
    def topics(self) -> Topics:
        return Topics(self.backends.store, self.backends.runtime)

    @property
    def registry(self) -> str:
        """The schema registry's URL."""
        return self.uri.replace("/iceberg", "/registry")

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "uri": self.uri}

    def create(self, topic: str, partitions: int = 2, *, table_name: str = "", **configs: str) -> None:
        """A setting's name has _ for its dots, and is below `lakestream`."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        config = {"lakestream.table.name": table_name} if table_name else {}
        config |= {f"lakestream.{name.replace('_', '.')}": value for name, value in configs.items()}
        admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result(30)

    def trim(self, topic: str, offset: int) -> None:
        """DeleteRecords of partition 0."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        place = TopicPartition(topic, 0, offset)
        admin.delete_records([place])[place].result(30)

    def delete(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result(30)

    def produce(self, topic: str, count: int, *, partition: int = 0, first: int = 0, value_bytes: int = 0) -> None:
        """Record n has key `k<n>`, value `<partition>-<n>` and timestamp BASE_MS + n seconds; every third a header."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for number in range(first, first + count):
            producer.produce(
                topic,
                key=b"k%d" % number,
                value=(b"%d-%d" % (partition, number)).ljust(value_bytes, b"."),
                partition=partition,
                timestamp=BASE_MS + 1000 * number,
                headers=[("h", b"x")] if number % 3 == 0 else None,
            )
            producer.poll(0)
        assert producer.flush(60) == 0

    def move(self) -> int:
        """Everything that is in the WAL now goes into its table; the number of records."""
        return self.run(self._move())

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    async def _move(self) -> int:
        worker = Worker(self.lake, self.topics, name="t", respect_leases=False)
        tick = await worker.tick()
        assert tick.failures == ()
        return tick.record_count


@contextmanager
def source_node(data: Path, **overrides: Any) -> Iterator[Node]:
    """Nothing moves by itself, and the door commits nothing on load."""
    with embedded(data, **overrides) as brokers:
        settings = load(None, {}, {"data_dir": str(data)} | overrides)
        listener = socket.create_server(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}/iceberg"
        opened: Future[tuple[Node, uvicorn.Server]] = Future()

        async def serve() -> None:
            async with open_backends(settings) as backends, open_catalog(backends) as catalog:
                runner = LocalTiles(backends.objects, backends.runtime)
                plain = PipelineSettings(interval_ms=0)
                lake = Lake(
                    *(backends.store, catalog, backends.objects, runner, backends.runtime, plain),
                    schemas=make_schemas(backends),
                )
                registry = SchemaRegistry(backends.store, backends.objects, backends.runtime, ALLOW_ALL)
                server = uvicorn.Server(
                    uvicorn.Config(
                        create_app(catalog_of(make_engines(backends, catalog)), registry=registry),
                        log_level="warning",
                        lifespan="off",
                        timeout_graceful_shutdown=1,
                    )
                )
                node = Node(brokers.bootstrap, uri, backends, lake, asyncio.get_running_loop())
                opened.set_result((node, server))
                await server.serve(sockets=[listener])

        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        try:
            node, server = opened.result(30)
            yield node
        finally:
            server.should_exit = True
            thread.join(30)
            listener.close()
