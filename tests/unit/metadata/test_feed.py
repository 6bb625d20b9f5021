"""The change feed: what brokers write, what readers make of it, and what happens to the rows of the dead."""

import asyncio
from random import Random
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from lakestream.errors import Unavailable
from lakestream.metadata import feed
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metadata.feed import FEED, MAX_TOPICS, TOUCH_MS, Changes, Feed, Touches
from lakestream.metadata.store import Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import Runtime, system


class Clock:
    ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def topic(number: int) -> UUID:
    return UUID(int=number)


def reader(store: MemoryStore, *sessions: str) -> Feed:
    async def live() -> frozenset[str]:
        return frozenset(sessions)

    return Feed(store, live)


async def test_a_reader_is_told_of_each_touch_once() -> None:
    store = MemoryStore(system())
    one, two = Touches(store, "one"), Touches(store, "two")
    reading = reader(store, "one", "two")
    assert not (await reading.read()).is_complete, "whoever begins knows nothing"
    for touches, number in ((one, 1), (one, 2), (two, 2), (two, 3)):
        touches.touch(topic(number))
    await one.write()
    await two.write()
    found = await reading.read()
    assert (found.topics, found.is_complete) == ({topic(1), topic(2), topic(3)}, True)
    assert (await reading.read()).topics == frozenset()
    one.touch(topic(1))
    await one.write()
    await one.write()
    assert (await reading.read()).topics == {topic(1)}


@examples(60)
@given(st.integers(0, 1 << 30))
async def test_nobody_misses_a_touch_or_is_told_that_something_may_be_missing(seed: int) -> None:
    """Readers that come at any time, and a broker that touches more than its row holds."""

    with patch.object(feed, "MAX_TOPICS", 30):
        random, store, most = Random(seed), MemoryStore(system()), 30
        touches, feeds = Touches(store, "one"), [reader(store, "one") for _ in range(3)]
        missing: list[set[UUID]] = [set() for _ in feeds]
        for _ in range(30):
            for _ in range(random.choice((1, 3, most // 3, most))):
                number = random.randrange(3 * most)
                touches.touch(topic(number))
                for each in missing:
                    each.add(topic(number))
            await touches.write()
            [row] = await store.range(FEED, "", "~")
            assert len(row.value) < 40 * most
            at = random.randrange(len(feeds))
            changes = await feeds[at].read()
            assert not changes.is_complete or missing[at] <= changes.topics
            missing[at].clear()


async def test_a_row_is_bounded() -> None:
    store = MemoryStore(system())
    touches = Touches(store, "one")
    for number in range(5 * MAX_TOPICS):
        touches.touch(topic(number))
    await touches.write()
    [row] = await store.range(FEED, "", "~")
    assert len(row.value) < 20 * MAX_TOPICS
    reading = reader(store, "one")
    await reading.read()
    touches.touch(topic(1))
    await touches.write()
    assert await reading.read() == Changes(frozenset({topic(1)}), is_complete=True)


class Deaf(MemoryStore):
    """Applies writes and does not answer, or keeps them until later."""

    mode = ""

    async def transact(self, transactions: object) -> list[Outcome]:
        if self.mode == "lost reply":
            await super().transact(transactions)  # type: ignore[arg-type]
        if self.mode == "late":
            self.late = transactions
        if self.mode:
            raise Unavailable("no answer")
        return await super().transact(transactions)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["lost request", "lost reply", "late"])
async def test_what_could_not_be_written_is_written_with_the_next(mode: str) -> None:
    store = Deaf(system())
    touches, reading = Touches(store, "one"), reader(store, "one")
    await reading.read()
    touches.touch(topic(1))
    store.mode = mode
    with pytest.raises(Unavailable):
        await touches.write()
    store.mode = ""
    touches.touch(topic(2))
    await touches.write()
    if mode == "late":
        await store.transact(store.late)
    assert (await reading.read()).topics == {topic(1), topic(2)}


async def test_rows_of_dead_brokers_vanish_and_readers_look_at_everything() -> None:
    clock = Clock()
    store = MemoryStore(Runtime(clock, Random(1)))
    brokers = Brokers(store, ttl_ms=1_000)
    await brokers.register(Broker(1, "h", 1, None, "one"))
    touches = Touches(store, "one")
    await touches.begin()
    first, second = Feed(store, brokers.sessions), Feed(store, brokers.sessions)
    touches.touch(topic(1))
    await touches.write()
    await first.read()
    await second.read()
    assert (await first.read()).is_complete
    touches.touch(topic(2))
    await touches.write()
    clock.ms += 2_000
    found = await first.read()
    assert (found.topics, found.is_complete) == ({topic(2)}, False)
    assert await store.range(FEED, "", "~") == []
    assert not (await second.read()).is_complete, "it has never seen the last touches"
    assert (await second.read()).is_complete
    # It was only asleep.
    await brokers.register(Broker(1, "h", 1, None, "one"))
    touches.touch(topic(3))
    await touches.write()
    assert topic(3) in (await first.read()).topics


async def test_a_broker_that_lives_and_tells_nothing_makes_readers_look_at_everything() -> None:
    store = MemoryStore(system())
    one, reading = Touches(store, "one"), reader(store, "one", "of an older version")
    await one.begin()
    await reading.read()
    assert not (await reading.read()).is_complete
    reading = reader(store, "one")
    await reading.read()
    assert await reading.read() == Changes(frozenset(), is_complete=True)


async def test_a_broker_that_was_taken_for_dead_puts_its_row_back() -> None:
    store = MemoryStore(system())
    touches = Touches(store, "one")
    await touches.begin()
    [row] = await store.range(FEED, "", "~")
    await store.transact([Transaction(FEED, {}, {}, deletes=[row.key])])
    with patch.object(feed, "_LOOK_S", 0.001):
        task = asyncio.create_task(touches.run())
        while not await store.range(FEED, "", "~"):
            await asyncio.sleep(0.001)
        task.cancel()


async def test_a_row_that_cannot_be_read_tells_that_something_is_missing() -> None:
    store = MemoryStore(system())
    touches, reading = Touches(store, "one"), reader(store, "one")
    await reading.read()
    touches.touch(topic(1))
    await touches.write()
    [row] = await store.range(FEED, "", "~")
    await store.transact([Transaction(FEED, {}, {row.key: row.value[:-1] + b"\0"})])
    assert not (await reading.read()).is_complete
    assert (await reading.read()).is_complete


async def test_a_reader_that_was_cut_off_says_that_it_missed_something() -> None:
    store = Deaf(system())
    touches, reading = Touches(store, "one"), reader(store)
    await reading.read()
    touches.touch(topic(1))
    await touches.write()
    store.mode = "lost request"
    with pytest.raises(Unavailable):
        await reading.read()
    store.mode = ""
    assert not (await reading.read()).is_complete


async def test_a_broker_writes_at_once_and_then_at_its_pace() -> None:
    store = MemoryStore(system())
    touches, reading = Touches(store, "one"), reader(store, "one")
    task = asyncio.create_task(touches.run())
    found: set[UUID] = set()
    began_s = asyncio.get_running_loop().time()
    for number in range(1, 40):
        touches.touch(topic(number))
        await asyncio.sleep(0.005)
    while len(found) < 39:
        found |= (await reading.read()).topics
        await asyncio.sleep(0.01)
    task.cancel()
    most = 2 + (asyncio.get_running_loop().time() - began_s) * 1000 / TOUCH_MS
    assert touches._number <= most, "touches are collected"
