"""The SQLite store shared by processes."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.fakes.stores import apply, put

from lakestream.metadata.store import ABSENT, Address
from lakestream.metadata.stores.sqlite.store import open_sqlite

PRELUDE = """
import asyncio, sys, time
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.metadata.store import ABSENT, Address, Applied, Transaction

N = Address("s", "n")

async def increment(store):
    while True:
        (entry,) = await store.get([N])
        count, version = (int(entry.value), entry.version) if entry else (0, ABSENT)
        value = str(count + 1).encode()
        (outcome,) = await store.transact([Transaction("s", {"n": version}, {"n": value, "log/%06d" % count: b"x"})])
        if isinstance(outcome, Applied):
            return count + 1
"""

HAMMER = """
async def main(path, times):
    store = await open_sqlite(path)
    await asyncio.gather(*(several(store, int(times) // 4) for _ in range(4)))
    await store.close()

async def several(store, times):
    for _ in range(times):
        await increment(store)

asyncio.run(main(*sys.argv[1:]))
"""

ENDLESS = """
async def main(path):
    store = await open_sqlite(path)
    while True:
        print(await increment(store), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""

ON_REQUEST = """
async def main(path):
    store = await open_sqlite(path)
    print("ready", flush=True)
    for line in sys.stdin:
        await increment(store)
        print(time.monotonic(), flush=True)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def process(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        try:
            yield child
        finally:
            child.kill()


async def count_of(path: Path) -> tuple[int, int]:
    """The counter, and how many rows say that it was raised."""
    store = await open_sqlite(str(path))
    (entry,) = await store.get([Address("s", "n")])
    logged = await store.range("s", "log/", "log0")
    await store.close()
    return int(entry.value) if entry else 0, len(logged)


async def test_two_processes_lose_no_increment(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with process(HAMMER, path, 120) as first, process(HAMMER, path, 120) as second:
        assert (first.wait(60), second.wait(60)) == (0, 0)
    assert await count_of(path) == (240, 240)


async def test_watch_sees_the_writes_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    delays_s = []
    store = await open_sqlite(str(path))
    loop = asyncio.get_running_loop()
    with process(ON_REQUEST, path) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        answer = other.stdout.readline
        assert await asyncio.to_thread(answer) == "ready\n"
        version = ABSENT
        for _ in range(7):
            watching = asyncio.create_task(store.watch({Address("s", "n"): version}, timeout_ms=30_000))
            await asyncio.sleep(0.03)
            assert not watching.done()
            print(file=other.stdin, flush=True)
            assert await watching
            woken_s = loop.time()
            delays_s.append(woken_s - float(await asyncio.to_thread(answer)))
            (entry,) = await store.get([Address("s", "n")])
            assert entry is not None
            version = entry.version
    await store.close()
    assert sorted(delays_s)[len(delays_s) // 2] < 0.1


async def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    acknowledged = 0
    for _ in range(3):
        with process(ENDLESS, path) as child:
            assert child.stdout is not None
            for _ in range(25):
                acknowledged = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *(int(line) for line in child.stdout.read().split("\n")[:-1])])
        count, logged = await count_of(path)
        assert count == logged
        assert acknowledged <= count <= acknowledged + 1


async def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = await open_sqlite(str(path))
    with process(ENDLESS, path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        async with asyncio.timeout(30):
            await apply(store, put(a=b"1"))
    await store.close()
