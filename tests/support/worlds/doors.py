"""The HTTP door of one data directory in this process, on a thread of its own, and engines that come to it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import uvloop
from duckdb_extensions import import_extension

from lakestream.node.http import run_http
from lakestream.settings import load
from support.worlds.processes import HOST, free_ports


@contextmanager
def http_door(data: Path, **overrides: Any) -> Iterator[str]:
    """The address of a door on this data directory."""
    port, loop = free_ports(1), uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    settings = load(None, {}, {"data_dir": str(data), "http.port": port} | overrides)
    ready, stop = threading.Event(), asyncio.Event()
    running = asyncio.run_coroutine_threadsafe(run_http(settings, ready.set, stop), loop)
    try:
        while not ready.wait(0.05):
            if running.done():
                running.result()
        yield f"http://{HOST}:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        running.result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextmanager
def duck(door: str) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    for extension in ("avro", "httpfs", "iceberg"):
        import_extension(extension)
        connection.load_extension(extension)
    connection.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{door}/iceberg', AUTHORIZATION_TYPE 'none')")
    try:
        yield connection
    finally:
        connection.close()
