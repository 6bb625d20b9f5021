"""One load per entry, least recently used out first, within the budget."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from lakestream.table.reading.cache import SharedCache


def loader(value: bytes, calls: list[bytes], wait: asyncio.Event | None = None) -> Callable[[], Awaitable[bytes]]:
    async def load() -> bytes:
        calls.append(value)
        if wait is not None:
            await wait.wait()
        return value

    return load


async def test_the_budget_holds_and_the_oldest_use_goes_first() -> None:
    cache, calls = SharedCache(10), list[bytes]()
    for value in (b"aaaa", b"bbbb", b"aaaa", b"cccc", b"aaaa", b"bbbb"):
        assert await cache.get(value, loader(value, calls), len) == value
        assert cache.size_bytes <= 10
    assert calls == [b"aaaa", b"bbbb", b"cccc", b"bbbb"]


async def test_an_entry_too_large_stays_until_the_next_comes() -> None:
    cache, calls = SharedCache(2), list[bytes]()
    for value in (b"aaaa", b"aaaa", b"b", b"aaaa"):
        await cache.get(value, loader(value, calls), len)
    assert calls == [b"aaaa", b"b", b"aaaa"]


async def test_many_wait_for_one_load_and_one_may_leave() -> None:
    cache, calls, go = SharedCache(100), list[bytes](), asyncio.Event()
    waiting = [asyncio.ensure_future(cache.get(1, loader(b"x", calls, go), len)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    go.set()
    assert await asyncio.gather(*waiting[1:]) == [b"x", b"x"]
    assert calls == [b"x"]


async def test_a_failed_load_is_told_to_all_and_tried_again() -> None:
    cache = SharedCache(100)

    async def fail() -> bytes:
        await asyncio.sleep(0)
        raise OSError("gone")

    results = await asyncio.gather(*(cache.get(1, fail, len) for _ in range(2)), return_exceptions=True)
    assert [type(result) for result in results] == [OSError, OSError]
    assert await cache.get(1, loader(b"x", []), len) == b"x"
    lonely = asyncio.ensure_future(cache.get(2, fail, len))
    await asyncio.sleep(0)
    lonely.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lonely
    await asyncio.sleep(0.01)


async def test_several_are_loaded_in_one_go_and_an_error_is_its_own_entrys() -> None:
    cache, calls = SharedCache(100), list[list[int]]()

    async def load(keys: Sequence[int]) -> list[bytes | Exception]:
        calls.append([*keys])
        await asyncio.sleep(0)
        return [OSError("gone") if key == 3 else b"%d" % key for key in keys]

    assert await cache.get_all([1, 2, 1], load, len) == [b"1", b"2", b"1"]
    together = (
        cache.get_all([2, 3, 4], load, len),
        cache.get_all([4, 5, 2], load, len),
        cache.get_all([3], load, len),
    )
    first, second, third = await asyncio.gather(*together, return_exceptions=True)
    assert second == [b"4", b"5", b"2"]
    assert isinstance(first, OSError)
    assert isinstance(third, OSError)
    assert await cache.get_all([4, 1], load, len) == [b"4", b"1"]
    with pytest.raises(OSError, match="gone"):
        await cache.get_all([3], load, len)
    assert calls == [[1, 2], [3, 4], [5], [3]]


async def test_several_need_not_fit_the_budget_together() -> None:
    cache = SharedCache(3)

    async def load(keys: Sequence[int]) -> list[bytes | Exception]:
        return [b"%d" % key * 2 for key in keys]

    for _ in range(2):
        assert await cache.get_all([1, 2, 3, 2], load, len) == [b"11", b"22", b"33", b"22"]
        assert cache.size_bytes <= 3
