import asyncio
from pathlib import Path

import pytest
from support.simulated import runner
from support.stores import BACKENDS, SLOW, Check, Run

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
