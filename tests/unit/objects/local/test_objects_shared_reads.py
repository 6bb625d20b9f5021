"""Reads of one turn share threads, and nothing else: each has its own answer, its own error, its own end."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakestream.errors import ObjectMissing
from lakestream.objects import LocalObjects
from lakestream.objects.local.shared_reads import SharedReads


class CountingPool(ThreadPoolExecutor):
    hops = 0

    def submit(self, *arguments, **named):  # type: ignore[no-untyped-def]
        self.hops += 1
        return super().submit(*arguments, **named)


def reading(number: int) -> Callable[[], bytes]:
    def read() -> bytes:
        if number == 3:
            raise FileNotFoundError("no such file")
        return b"%d" % number

    return read


async def test_reads_of_one_turn_share_hops_and_keep_their_own_outcomes() -> None:
    with CountingPool(2) as pool:
        reads = SharedReads(pool)
        outcomes = await asyncio.gather(*(reads.run(reading(number)) for number in range(20)), return_exceptions=True)
    assert pool.hops == 3
    assert isinstance(outcomes.pop(3), FileNotFoundError)
    assert outcomes == [b"%d" % number for number in range(20) if number != 3]


async def test_who_leaves_does_not_take_the_others_along() -> None:
    go = threading.Event()

    def wait() -> bytes:
        go.wait(10)
        return b"late"

    with ThreadPoolExecutor(1) as pool:
        reads = SharedReads(pool)
        leaving, staying = (asyncio.ensure_future(reads.run(wait)) for _ in range(2))
        await asyncio.sleep(0.01)
        leaving.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert await staying == b"late"


def test_a_loop_that_ended_leaves_nothing_behind() -> None:
    async def left(reads: SharedReads) -> None:
        asking = asyncio.ensure_future(reads.run(reading(1)))
        await asyncio.sleep(0)
        asking.cancel()

    with ThreadPoolExecutor(1) as pool:
        reads = SharedReads(pool)
        asyncio.run(left(reads))
        assert asyncio.run(reads.run(reading(2))) == b"2"


async def test_small_and_large_reads_of_a_directory_tell_the_same(tmp_path: object) -> None:
    store = LocalObjects(str(tmp_path))
    data = bytes(range(256)) * 2048
    await store.put("a/b", [data])
    for start, length in ((0, 10), (1000, 128 * 1024), (7, 300_000)):
        assert await store.get_range("a/b", start, length) == data[start : start + length]
    for length in (8, 200_000, 10_000_000):
        assert await store.get_tail("a/b", length) == data[-length:]
    for length in (8, 200_000):
        with pytest.raises(ObjectMissing, match="a/c does not exist"):
            await store.get_tail("a/c", length)
