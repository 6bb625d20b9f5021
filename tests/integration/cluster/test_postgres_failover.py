"""A primary dies and its standby takes over: whatever the store has said is there. Two real servers, of which the first
waits for the second with every commit."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psutil
import pytest
from conftest import need
from support.fakes.loops import run
from support.fakes.stores import apply, put
from support.servers.postgres import (
    PostgresServer,
    postgres_programs,
    postgres_server,
    promote,
    standby_of,
    wait_for_standbys,
)

from lakestream.errors import Unavailable
from lakestream.metadata.store import ABSENT, Address, Applied, Store
from lakestream.metadata.stores.postgres import connecting
from lakestream.metadata.stores.postgres.store import open_postgres

PATIENCE_S = 60.0


@dataclass
class Pair:
    primary: PostgresServer
    standby: PostgresServer
    primary_process: subprocess.Popen[bytes]
    standby_process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        here, there = self.primary.url, f"127.0.0.1:{self.standby.port}"
        return here.replace(f":{self.primary.port}/", f":{self.primary.port},{there}/")

    def end_primary(self) -> None:
        """As a power cut would: whoever waits for the standby in it hears nothing."""
        family = psutil.Process(self.primary_process.pid).children(recursive=True)
        for each in (self.primary_process, *family):
            each.kill()
        self.primary_process.wait(PATIENCE_S)
        psutil.wait_procs(family, PATIENCE_S)

    @contextmanager
    def standby_hangs(self) -> Iterator[None]:
        standby = psutil.Process(self.standby_process.pid)
        family = [standby, *standby.children(recursive=True)]
        for each in family:
            each.suspend()
        try:
            yield
        finally:
            for each in family:
                each.resume()


@pytest.fixture
def pair() -> Iterator[Pair]:
    programs = need(postgres_programs(), "PostgreSQL (initdb and postgres)")
    with postgres_server(programs, "s3cret") as primary, primary.up() as first:
        with standby_of(primary) as standby, standby.up() as second:
            wait_for_standbys(primary)
            yield Pair(primary, standby, first, second)


async def _value(store: Store) -> int:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                (entry,) = await store.get([Address("s", "n")])
                return int(entry.value) if entry else 0
            except Unavailable:
                await asyncio.sleep(0.1)


def test_a_fail_over_under_load_loses_nothing(pair: Pair) -> None:
    async def check() -> None:
        store, over, acked, unknown = await open_postgres(pair.url), asyncio.Event(), [0] * 4, [0] * 4

        async def add(number: int) -> None:
            shard = f"s{number}"
            while not over.is_set():
                try:
                    (entry,) = await store.get([Address(shard, "n")])
                    present = int(entry.value) if entry else 0
                    assert present >= acked[number], "an acknowledged write is gone"
                    change = put(shard, n=str(present + 1).encode(), checks={"n": entry.version if entry else ABSENT})
                    (outcome,) = await store.transact([change])
                    acked[number] += isinstance(outcome, Applied)
                except Unavailable:
                    unknown[number] += 1
                    await asyncio.sleep(0.05)

        async def until(goal: int) -> None:
            for _ in range(int(PATIENCE_S / 0.02)):
                if sum(acked) >= goal:
                    return
                await asyncio.sleep(0.02)
            raise AssertionError(f"{sum(acked)} of {goal} writes were acknowledged in {PATIENCE_S} s")

        tasks = [asyncio.create_task(add(number)) for number in range(4)]
        await until(100)
        await asyncio.to_thread(pair.end_primary)
        await asyncio.to_thread(promote, pair.standby)
        await until(sum(acked) + 100)
        over.set()
        await asyncio.gather(*tasks)
        for number in range(4):
            (entry,) = await store.get([Address(f"s{number}", "n")])
            assert entry is not None
            assert acked[number] <= int(entry.value) <= acked[number] + unknown[number]
        await store.close()

    run(check())


@pytest.mark.parametrize("crashes", [False, True])
def test_nothing_is_shown_that_the_standby_lacks(pair: Pair, monkeypatch: pytest.MonkeyPatch, crashes: bool) -> None:
    """A commit waits for a standby that hangs, and is given up; or the primary crashes meanwhile and comes back. The
    primary has it, the standby does not: who asks what became of it must not be told that it is there."""
    monkeypatch.setattr(connecting, "COMMAND_TIMEOUT_S", 1.0)

    async def check() -> None:
        store = await open_postgres(pair.url)
        await apply(store, put("s", n=b"1"))
        with pair.standby_hangs():
            with pytest.raises(Unavailable):
                await store.transact([put("s", n=b"2")])
            with ExitStack() as up:
                if crashes:
                    await asyncio.to_thread(pair.end_primary)
                    pair.primary_process = up.enter_context(pair.primary.up())
                with pytest.raises(Unavailable):
                    await store.get([Address("s", "n")])
                await asyncio.to_thread(pair.end_primary)
        await asyncio.to_thread(promote, pair.standby)
        assert await _value(store) in (1, 2)
        await store.close()

    run(check())


def test_a_standby_that_comes_back_settles_what_was_unknown(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "COMMAND_TIMEOUT_S", 1.0)

    async def check() -> None:
        store = await open_postgres(pair.url)
        await apply(store, put("s", n=b"1"))
        with pair.standby_hangs(), pytest.raises(Unavailable):
            await store.transact([put("s", n=b"2")])
        assert await _value(store) in (1, 2)
        await apply(store, put("s", n=b"3"))
        assert await _value(store) == 3
        await store.close()

    run(check())
