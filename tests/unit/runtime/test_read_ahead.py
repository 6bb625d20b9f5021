"""What comes next is loaded once, within a budget, for readers that read on, and not while memory is short."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lakestream.runtime import read_ahead
from lakestream.runtime.read_ahead import ReadAhead


class Loaded:
    """Lives as long as the test holds it, as in a cache."""


def loader(
    found: Loaded | None, calls: list[object], go: asyncio.Event | None = None
) -> Callable[[], Awaitable[Loaded | None]]:
    async def load() -> Loaded | None:
        calls.append(found)
        if go is not None:
            await go.wait()
        return found

    return load


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_only_who_comes_where_a_read_ended_reads_on() -> None:
    ahead: ReadAhead[Loaded] = ReadAhead(100)
    assert not ahead.follows("a", 7)
    ahead.ended("a", 7)
    assert ahead.follows("a", 7)
    assert not ahead.follows("a", 8)
    assert not ahead.follows("b", 7)


async def test_it_is_loaded_once_and_counts_until_its_reader_comes() -> None:
    ahead, calls, found, go = ReadAhead[Loaded](100), list[object](), Loaded(), asyncio.Event()
    assert ahead.begin("k", 60, loader(found, calls, go))
    assert not ahead.begin("k", 60, loader(found, calls, go))
    await settled()
    assert ahead.held_bytes == 60
    assert not ahead.begin("other", 60, loader(found, calls)), "more than the budget"
    go.set()
    await settled()
    assert ahead.held_bytes == 60
    ahead.came("k", found)
    assert ahead.held_bytes == 0
    assert ahead.begin("other", 60, loader(found, calls))
    await settled()
    assert calls == [found, found]


async def test_what_left_the_cache_unused_ends_it_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "PAUSE_S", 0.05)

    async def dropped() -> Loaded:
        return Loaded()

    for reader_comes in (True, False):
        ahead = ReadAhead[Loaded](100)
        assert ahead.begin("k", 10, dropped)
        await settled()
        if reader_comes:
            ahead.came("k", Loaded())
        assert ahead.held_bytes == 0, "it is held no more"
        assert not ahead.begin("other", 10, loader(Loaded(), []))
        await asyncio.sleep(0.06)
        assert ahead.begin("other", 10, loader(Loaded(), []))


async def test_a_failed_load_is_forgotten() -> None:
    ahead = ReadAhead[Loaded](100)

    async def fail() -> Loaded:
        raise OSError("gone")

    assert ahead.begin("k", 10, fail)
    await settled()
    assert ahead.held_bytes == 0
    assert ahead.begin("k", 10, loader(None, []))


async def test_a_reader_that_never_comes_does_not_keep_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "FORGOTTEN_S", 0.05)
    ahead, found = ReadAhead[Loaded](100), Loaded()
    assert ahead.begin("k", 100, loader(found, []))
    await settled()
    assert not ahead.begin("other", 100, loader(found, []))
    await asyncio.sleep(0.06)
    assert ahead.begin("other", 100, loader(found, []))
