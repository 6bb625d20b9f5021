"""The processes of queries: turns, memory, cancelled and lost ones. Each is a real process."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from lakestream.errors import Overloaded, QueryLimit, Unavailable
from lakestream.query.messages import AnswerFormat, Done, Examine, Examined, Failed, Limits, RunQuery
from lakestream.query.processes import QueryProcesses, raise_failure
from lakestream.query.settings import QuerySettings

RUNAWAY = "SELECT max(sha256(range::VARCHAR)) FROM range(1000000000000)"
pytestmark = pytest.mark.xdist_group("query processes")


def asked(text: str, memory_bytes: int = 64 << 20) -> RunQuery:
    limits = Limits(threads=1, memory_bytes=memory_bytes, rows=10, answer_bytes=1 << 20, watchdog_s=60)
    return RunQuery(text, (), (), AnswerFormat.JSON, limits)


@pytest.fixture
async def processes() -> AsyncIterator[QueryProcesses]:
    settings = QuerySettings(workers=1, waiting=1, wait_ms=30_000, process_bytes=800 << 20)
    opened = QueryProcesses(settings)
    yield opened
    await opened.close()


async def test_a_process_survives_what_it_can_and_is_replaced_if_not(processes: QueryProcesses) -> None:
    async with processes.one() as first:
        done = await first.ask(asked("SELECT 1 AS a"))
        assert isinstance(done, Done)
        assert done.body == b'[{"a":1}]'
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await first.ask(asked(RUNAWAY))
    async with processes.one() as again:
        assert again is first, "it was asked to stop, and did"
        assert isinstance(await again.ask(Examine("SELECT * FROM t")), Examined)
        failed = await again.ask(asked("SELECT nothing"))
        assert isinstance(failed, Failed)
        assert failed.kind == "QueryRefused"
        with pytest.raises(QueryLimit, match="800 MiB"):
            await again.ask(asked("SELECT list(range || repeat('x', 10000000)) FROM range(1000)", 8 << 30))
    async with processes.one() as second:
        assert second is not first
        os.kill(second._process.pid, signal.SIGKILL)
        with pytest.raises(Unavailable, match="ask again"):
            await second.ask(asked("SELECT 1"))
    async with processes.one() as third:
        assert isinstance(await third.ask(asked("SELECT 1")), Done)
    assert processes.ended == 2


async def test_queries_wait_for_their_turn_and_not_without_bounds(processes: QueryProcesses) -> None:
    async def ask(text: str) -> object:
        async with processes.one() as process:
            return await process.ask(asked(text))

    async with processes.one():
        waiting = asyncio.create_task(ask("SELECT 1"))
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded, match="1 queries wait"):
            await ask("SELECT 1")
    assert isinstance(await waiting, Done)
    impatient = QueryProcesses(QuerySettings(workers=1, wait_ms=50))
    async with impatient._turns:
        with pytest.raises(Overloaded, match="within 50 ms"):
            async with impatient.one():
                pass


def test_errors_of_a_process_are_ours() -> None:
    with pytest.raises(QueryLimit, match="why"):
        raise_failure("QueryLimit", "why")
    with pytest.raises(Unavailable):
        raise_failure("SystemExit", "no error of ours")
