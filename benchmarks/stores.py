"""What a commit of a WAL object costs on each metadata store, by the number of its partitions: for every one a checked
head and an extent, all in one call. All stores sync what they acknowledge. Oxia is measured if its server was built
(`make oxia`), from one process, as that server demands."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from support.servers.oxia import oxia_program, real_oxia
from support.servers.postgres import postgres_programs, postgres_server

from benchmarks.result import QUICK, Result, versus, with_curve
from lakestream import metadata
from lakestream.metadata.store import ABSENT, Applied, Store, Transaction

PARTITIONS = (1, 100, 1_000)
SECONDS = 1.0 if QUICK else 5.0
HEAD, EXTENT = bytes(200), bytes(100)


def run() -> list[Result]:
    with _sqlite() as url:
        embedded = asyncio.run(_rates(url))
    with _postgres() as url:
        server = asyncio.run(_rates(url))
    results = [
        versus(
            f"commits of {count:,} partitions, PostgreSQL beside SQLite",
            server[count],
            embedded[count],
            "/s",
            at_least=0.5,
        )
        for count in PARTITIONS
    ]
    points = [(count, rate * count) for count, rate in server.items()]
    title = "Partitions a second that one connection to PostgreSQL commits"
    results[-1] = with_curve(results[-1], "stores", title, x="partitions of a commit", y="partitions/s", points=points)
    return results + _on_oxia(embedded)


def _on_oxia(embedded: dict[int, float]) -> list[Result]:
    program = oxia_program()
    if program is None:
        return []
    with real_oxia(program) as url:
        rates = asyncio.run(_rates(url))
    return [
        versus(
            f"commits of {count:,} partitions, Oxia 0.14 beside SQLite",
            rates[count],
            embedded[count],
            "/s",
            at_least=0.1,
        )
        for count in PARTITIONS
    ]


async def _rates(url: str) -> dict[int, float]:
    store = await metadata.open(url)
    try:
        return {count: await _rate(store, count) for count in PARTITIONS}
    finally:
        await store.close()


async def _rate(store: Store, count: int) -> float:
    versions = [ABSENT] * count
    commits, started = 0, time.monotonic()
    while (took_s := time.monotonic() - started) < SECONDS:
        outcomes = await store.transact(
            [
                Transaction(f"log/{count}/{n:06d}", {"head": v}, {"head": HEAD, f"extent/{commits % 20:04d}": EXTENT})
                for n, v in enumerate(versions)
            ]
        )
        versions = [outcome.version for outcome in outcomes if isinstance(outcome, Applied)]
        assert len(versions) == count
        commits += 1
    return commits / took_s


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite://{folder}/metadata.db"


@contextmanager
def _postgres() -> Iterator[str]:
    programs = postgres_programs()
    assert programs, "PostgreSQL is missing: make .venv/.dev"
    with postgres_server(programs, synced=True) as server, server.up():
        yield server.url
