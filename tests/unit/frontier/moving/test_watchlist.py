"""What a tick looks at: a bounded number of topics, and yet all of them within their time."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from support.worlds.memory import MemoryWorld, Producer

from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.watchlist import LINGER_MS, Watchlist
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metadata.feed import Changes, Feed, Touches
from lakestream.metadata.topics.list import Topic, Topics

SWEEP_MS = 600_000


class Told:
    """A feed that tells what it was given."""

    def __init__(self) -> None:
        self.topics: set[UUID] = set()
        self.is_complete = True

    async def read(self) -> Changes:
        told, self.topics = frozenset(self.topics), set()
        is_complete, self.is_complete = self.is_complete, True
        return Changes(told, is_complete)


def topics(count: int) -> list[Topic]:
    return [Topic(f"t{number:06d}", UUID(int=number + 1), 1, {}, 0) for number in range(count)]


async def settled(feed: Any, listed: Sequence[Topic], now_ms: int) -> Watchlist:
    """One that has found all topics caught up."""
    found = Watchlist(feed, sweep_ms=SWEEP_MS)
    found.relist(listed)
    assert [topic.name for topic in (await found.look(now_ms)).topics] == [topic.name for topic in listed]
    for topic in listed:
        found.found_caught_up(topic.topic_id, now_ms)
    return found


async def test_every_topic_is_looked_at_within_ten_minutes_and_few_at_a_time() -> None:
    for count, pace_ms in ((1, 5_000), (7, 5_000), (1_000, 5_000), (1_000, 100), (10_000, 7_000)):
        now_ms = 1_000_000
        listed = topics(count)
        watchlist = await settled(Told(), listed, now_ms)
        seen = dict.fromkeys((topic.topic_id for topic in listed), now_ms)
        longest_ms = most = 0
        while now_ms < 1_000_000 + 3 * SWEEP_MS:
            now_ms += pace_ms
            look = await watchlist.look(now_ms)
            most = max(most, len(look.topics))
            for topic in look.topics:
                longest_ms = max(longest_ms, now_ms - seen[topic.topic_id])
                seen[topic.topic_id] = now_ms
                watchlist.found_caught_up(topic.topic_id, now_ms)
        assert longest_ms <= SWEEP_MS
        assert all(now_ms - at_ms <= SWEEP_MS for at_ms in seen.values())
        assert most <= 2 + 1.2 * count * pace_ms / SWEEP_MS


async def test_topics_that_come_and_go_do_not_hide_others_from_the_sweep() -> None:
    now_ms, listed = 1_000_000, topics(200)
    watchlist = await settled(Told(), listed, now_ms)
    kept = {topic.topic_id for topic in listed if topic.topic_id.int % 3}
    seen: set[UUID] = set()
    for step in range(SWEEP_MS // 5_000):
        now_ms += 5_000
        dropped = step // 20 % 2
        watchlist.relist([topic for topic in listed if topic.topic_id in kept or not dropped])
        look = await watchlist.look(now_ms)
        seen |= {topic.topic_id for topic in look.topics}
        for topic in look.topics:
            watchlist.found_caught_up(topic.topic_id, now_ms)
    assert kept <= seen


async def test_a_touched_topic_is_looked_at_until_it_is_level_and_a_little_longer() -> None:
    feed, listed, now_ms = Told(), topics(100), 1_000_000
    watchlist = await settled(feed, listed, now_ms)
    wanted = listed[50].topic_id
    feed.topics.add(wanted)
    look = await watchlist.look(now_ms + 500)
    assert (list(look.woken), look.touched) == ([wanted], {wanted})
    assert look.caught_up_ms <= now_ms
    watchlist.keep(wanted)
    assert [topic.topic_id for topic in (await watchlist.look(now_ms + 900)).topics] == [wanted]
    watchlist.found_caught_up(wanted, now_ms + 900)
    look = await watchlist.look(now_ms + 1_000)
    assert [topic.topic_id for topic in look.topics] == [wanted], "its touches may be late"
    assert not look.woken
    watchlist.found_caught_up(wanted, now_ms + 500 + LINGER_MS)
    assert not (await watchlist.look(now_ms + 600 + LINGER_MS)).topics


async def test_everything_is_looked_at_when_the_feed_may_have_missed_something() -> None:
    feed, listed = Told(), topics(100)
    watchlist = await settled(feed, listed, 1_000_000)
    feed.is_complete = False
    look = await watchlist.look(1_000_100)
    assert (len(look.topics), look.touched) == (100, None)


def worker_of(world: MemoryWorld, store: Any) -> Worker:
    catalog = world.catalog_on(store)
    lake = Lake(store, catalog, world.objects, LocalTiles(world.objects, world.runtime), world.runtime, world.settings)
    return Worker(lake, Topics(store, world.runtime), name="w", feed=Feed(store, Brokers(store).sessions))


class Counted:
    """A store that counts what is read."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.calls = 0
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._inner, name)

        async def counted(*args: Any, **kwargs: Any) -> Any:
            found = await work(*args, **kwargs)
            self.calls += 1
            self.rows += len(found) if isinstance(found, list) else 1
            return found

        return counted


async def test_an_idle_tick_with_many_topics_reads_a_few_rows() -> None:
    """And one record among all of them is in its table with the next tick."""
    world = MemoryWorld(settings=PipelineSettings(interval_ms=5_000, lease_ms=1))
    created = [await world.create(f"t{number:04d}", 10) for number in range(1_000)]
    brokers = Brokers(world.store, ttl_ms=86_400_000)
    await brokers.register(Broker(1, "h", 1, None, "one"))
    touches, store = Touches(world.store, "one"), Counted(world.store)
    await touches.begin()
    worker = worker_of(world, store)
    looked_at = 0
    while (tick := await worker.tick()).more:
        looked_at += tick.looked_at
        world.clock.ms += 2_000
    assert looked_at < 2 * len(created), "tables are made a few a tick; the heads of the others are not read again"
    world.clock.ms += 5_000
    await worker.tick()
    for _ in range(20):
        world.clock.ms += 5_000
        store.calls = store.rows = 0
        tick = await worker.tick()
        assert tick.looked_at <= 12
        assert store.calls <= 5
        assert store.rows <= 10 + 10 * 12
    producer = Producer(world, "one")
    await producer.append({created[700].each_partition()[3]: [b"x"]})
    touches.touch(created[700].topic_id)
    await touches.write()
    world.clock.ms += 5_000
    assert [done.topic for done in (await worker.tick()).commits] == ["t0700"]


async def test_a_topic_that_nobody_touched_is_found_by_the_sweep() -> None:
    world = MemoryWorld(settings=PipelineSettings(interval_ms=5_000, lease_ms=1))
    created = [await world.create(f"t{number:02d}", 1) for number in range(20)]
    worker = worker_of(world, world.store)
    await worker.tick()
    await Producer(world, "one").append({created[7].each_partition()[0]: [b"x"]})
    began_ms, commits = world.clock.ms, ()
    while not commits:
        world.clock.ms += 5_000
        assert world.clock.ms - began_ms <= SWEEP_MS
        commits = (await worker.tick()).commits  # type: ignore[assignment]
    assert world.clock.ms - began_ms > 5_000


async def test_a_topic_that_wakes_up_waits_for_its_interval_as_before() -> None:
    """It was caught up at the tick before, whether that looked at it or not."""
    world = MemoryWorld(settings=PipelineSettings(interval_ms=5_000, lease_ms=1))
    topic = await world.create("slow", 1, {"lakestream.table.commit.interval.ms": "60000"})
    brokers = Brokers(world.store, ttl_ms=86_400_000)
    await brokers.register(Broker(1, "h", 1, None, "one"))
    touches, worker, producer = Touches(world.store, "one"), worker_of(world, world.store), Producer(world, "one")
    await touches.begin()
    for _ in range(30):
        world.clock.ms += 5_000
        await worker.tick()
    await producer.append({topic.each_partition()[0]: [b"x"]})
    touches.touch(topic.topic_id)
    await touches.write()
    moved = []
    for _ in range(12):
        world.clock.ms += 5_000
        moved.append((await worker.tick()).record_count)
    assert moved == [0] * 10 + [1, 0] or moved == [0] * 9 + [1, 0, 0]
