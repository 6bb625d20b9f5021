import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from support.fakes.catalogs import Bench, Open
from support.fakes.simulated import runner
from support.fakes.stores import BACKENDS, SLOW, Check, Run
from support.servers.catalogs import EXTERNAL, QUICK, external_place
from support.tables.simulated import SimulatedTables

from lakestream import runtime
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.external.tables import ExternalTables

SERVERS = {"postgres": "postgres_uri", "oxia-server": "oxia_url"}


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in BACKENDS])
def backend(request: pytest.FixtureRequest) -> str:
    """A metadata store's name among `BACKENDS`."""
    name: str = request.param
    return name


@pytest.fixture
def place(request: pytest.FixtureRequest, backend: str, tmp_path: Path) -> str:
    """What the backend's opener wants: a folder, or a server's address."""
    return request.getfixturevalue(SERVERS[backend]) if backend in SERVERS else str(tmp_path)


@pytest.fixture
def run(backend: str, place: str) -> Run:
    """Runs a check against a fresh metadata store of each backend."""

    async def main(check: Check) -> None:
        async with BACKENDS[backend](place) as store, asyncio.timeout(60):
            await check(store)

    def run(check: Check) -> None:
        with runner(backend) as loop:
            loop.run(main(check))

    return run


@pytest.fixture(
    params=[
        "pyiceberg on memory",
        "pyiceberg on sqlite",
        "simulated on memory",
        "simulated on simulated",
        *(pytest.param(f"{kind} on memory", marks=() if kind in QUICK else pytest.mark.slow) for kind in EXTERNAL),
    ]
)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """A table catalog of each kind, on one metadata store or another."""
    kind, _, backend = request.param.partition(" on ")
    with ExitStack() as stack:
        place = stack.enter_context(external_place(kind, request, tmp_path)) if kind in EXTERNAL else None

        @asynccontextmanager
        async def opened() -> AsyncIterator[Bench]:
            world = runtime.Runtime(runtime.system().clock, random.Random(7))
            async with BACKENDS[backend](tmp_path) as store:
                catalog: PyIcebergTables | ExternalTables | SimulatedTables
                if place is not None:
                    catalog = place.tables(store, world)
                elif kind == "simulated":
                    catalog = SimulatedTables(store)
                else:
                    catalog = PyIcebergTables(store, f"file://{tmp_path}/bucket", world)
                try:
                    yield Bench(catalog, tmp_path, collectable=kind != "nessie", takes_columns=kind != "nessie")
                finally:
                    await catalog.close()

        yield Open(backend, opened)
