import asyncio
from pathlib import Path

import pytest
from support.simulated import runner
from support.stores import BACKENDS, Check, Run


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a check against a fresh metadata store of each backend."""
    opener = BACKENDS[request.param]

    async def main(check: Check) -> None:
        async with opener(tmp_path) as store, asyncio.timeout(60):
            await check(store)

    def run(check: Check) -> None:
        with runner(request.param) as loop:
            loop.run(main(check))

    return run
