"""Bugs of the change feed: a hint that is taken for more."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet

from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.fresh import Freshener
from lakestream.frontier.moving.watchlist import Watchlist
from lakestream.metadata.brokers import Brokers
from lakestream.metadata.feed import Changes, Feed, Touches
from lakestream.metadata.log.head import Head
from lakestream.metadata.topics.list import Topic
from simulator.bugs.registry import bug, door_bug, staged, swapped
from simulator.faults import Aim
from simulator.scene import Stage


@bug
def touch_lost_and_no_sweep() -> Iterator[None]:
    """Brokers forget their touches, and no pipeline looks at what it was not told of."""

    def touch(self: Touches, topic_id: UUID) -> None:
        """Forgotten."""

    with swapped(Touches, Touches.touch, touch), swapped(Watchlist, Watchlist.turn, lambda *_: []):
        yield


@staged(Stage("log", (Aim("transact log", "crash", 0.2, 4),)))
@bug
def dead_brokers_touches_are_not_missed() -> Iterator[None]:
    """Nobody asks what a broker that died would have told, and no pipeline looks at what it was not told of. Brokers
    tell late, so that more of them die before."""
    real, write = Feed.read, Touches.write

    begun: WeakSet[Feed] = WeakSet()

    async def read(self: Feed) -> Changes:
        is_first = self not in begun
        begun.discard(self)
        changes = await real(self)
        begun.add(self)
        return changes if is_first else Changes(changes.topics, is_complete=True)

    async def write_late(self: Touches) -> None:
        await asyncio.sleep(8.0)
        await write(self)

    with (
        swapped(Feed, real, read),
        swapped(Touches, write, write_late),
        swapped(Watchlist, Watchlist.turn, lambda *_: []),
    ):
        yield


@staged(Stage(aims=(Aim("transact feed", "slow", 0.5, 20), Aim("transact feed", "lost request", 0.3, 20))))
@door_bug
def cut_trusts_the_feed() -> Iterator[None]:
    """A cut takes a topic that no broker has touched since the last one for caught up."""
    begin, real = Freshener.__init__, Freshener.heads
    lakes: WeakKeyDictionary[Freshener, Lake] = WeakKeyDictionary()
    known: WeakKeyDictionary[Freshener, tuple[Feed, dict[UUID, dict[int, Head]]]] = WeakKeyDictionary()

    def noted(self: Freshener, lake: Lake, *more: Any, **options: Any) -> None:
        begin(self, lake, *more, **options)
        lakes[self] = lake

    async def heads(self: Freshener, topic: Topic) -> dict[int, Head]:
        store = lakes[self].store
        feed, seen = known.setdefault(self, (Feed(store, Brokers(store).sessions), {}))
        changes = await feed.read()
        if topic.topic_id in changes.topics or topic.topic_id not in seen:
            seen[topic.topic_id] = await real(self, topic)
        return seen[topic.topic_id]

    with swapped(Freshener, begin, noted), swapped(Freshener, real, heads):
        yield
