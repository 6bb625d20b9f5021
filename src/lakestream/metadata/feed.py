"""The change feed: brokers say which topics they have appended to, so that others know where to look.

Each broker has one row of bounded size. A *touch* is written behind the commit that it tells of, at most every
`TOUCH_MS`, never on the way to an ack. The feed is a hint: a broker that dies takes the touches with it that it has not
written. So whoever reads the feed looks at everything when a broker is gone or a row tells less than it should, and at
everything in turn anyway; and whoever must know (cuts, drains, fetches) reads heads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from uuid import UUID

import msgspec

from lakestream.errors import CorruptObject, LakestreamError
from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Store, Transaction

log = logging.getLogger(__name__)

FEED: Final = "feed"
_ROWS: Final = ("touched/", "touched0")
TOUCH_MS: Final = 200
"""A broker writes its row no more often. The first touch after a pause is written at once."""
MAX_TOPICS: Final = 2_000
"""What one row holds. Beyond it the oldest touches fall out, and readers that come too late for them look at all."""
_ID_BYTES: Final = 16
_LOOK_S: Final = 5.0
"""How often a broker that has nothing to tell looks whether its row is there."""

LiveSessions = Callable[[], Awaitable[frozenset[str]]]


class Touched(msgspec.Struct, frozen=True, array_like=True):
    """A broker's row. `number`: how often it was written. `since`: what was touched up to this write may be missing.
    `topics`: per write, the ids of those that it was the last to name, one after the other."""

    number: int
    since: int
    topics: list[tuple[int, bytes]]

    def after(self, number: int) -> Iterable[UUID]:
        """Touched by later writes than this one, as far as the row tells."""
        for written, ids in self.topics:
            if written > number:
                yield from (UUID(bytes=ids[at : at + _ID_BYTES]) for at in range(0, len(ids), _ID_BYTES))


class Touches:
    """One broker's hand on the feed."""

    def __init__(self, store: Store, session: str) -> None:
        self._store = store
        self._address = Address(FEED, _ROWS[0] + session)
        self._version = ABSENT
        self._number = 0
        self._since = 0
        self._written: dict[UUID, int] = {}
        """Topic → the last write that names it, in the order of the writes."""
        self._fresh: dict[UUID, None] = {}
        self._woken = asyncio.Event()

    def touch(self, topic_id: UUID) -> None:
        """Its log has changed. Costs next to nothing: the row is written later."""
        self._fresh[topic_id] = None
        self._woken.set()

    async def begin(self) -> None:
        """A broker that lives and has no row is one that tells nothing: then readers look at everything."""
        await self._replace(codec.encode(self._row(), self._address))

    async def run(self) -> None:
        """Until it is cancelled. What could not be written is written with the next that can."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            try:
                await (self.write() if self._fresh else self._restore())
            except LakestreamError as error:
                log.warning("what was appended to cannot be told to others now: %s", error)
                self._woken.set()
            await asyncio.sleep(TOUCH_MS / 1000)

    async def write(self) -> None:
        """Tells of all touches up to now. Nothing is forgotten if that fails."""
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, {}
        self._number += 1
        for topic_id in fresh:
            self._written.pop(topic_id, None)
            self._written[topic_id] = self._number
        self._drop_oldest()
        row = codec.encode(self._row(), self._address)
        try:
            await self._replace(row)
        except BaseException:
            self._fresh = fresh | self._fresh
            raise

    async def _restore(self) -> None:
        """The row, if somebody took this broker for dead."""
        [entry] = await self._store.get([self._address])
        if entry is None:
            await self.begin()

    async def _replace(self, row: bytes) -> None:
        """On what is there, so that an earlier write that arrives late does not take this one's place."""
        key = self._address.key
        while True:
            [outcome] = await self._store.transact([Transaction(FEED, {key: self._version}, {key: row})])
            if isinstance(outcome, Applied):
                self._version = outcome.version
                return
            entry = outcome.current[key]
            self._version = ABSENT if entry is None else entry.version

    def _drop_oldest(self) -> None:
        for topic_id in list(self._written)[: max(0, len(self._written) - MAX_TOPICS)]:
            self._since = self._written.pop(topic_id)

    def _row(self) -> Touched:
        writes = groupby(self._written.items(), key=lambda each: each[1])
        topics = [(number, b"".join(topic_id.bytes for topic_id, _ in found)) for number, found in writes]
        return Touched(self._number, self._since, topics)


@dataclass(frozen=True, slots=True)
class Changes:
    """`topics`: touched since the last look. `is_complete`: as far as anybody can tell nothing else was."""

    topics: frozenset[UUID]
    is_complete: bool


@dataclass(slots=True)
class _Seen:
    version: int
    number: int


class Feed:
    """One reader's place in the feed. `live` tells the sessions of the brokers that live."""

    def __init__(self, store: Store, live: LiveSessions) -> None:
        self._store = store
        self._live = live
        self._seen: dict[str, _Seen] = {}
        self._has_missed = True
        """Nothing was read yet, or what was read never reached the caller."""

    async def read(self) -> Changes:
        """What changed since the last call. The first is not complete."""
        is_complete, self._has_missed = not self._has_missed, True
        # Before the rows: whoever is gone by now has written all that it ever will.
        live = await self._live()
        entries = await self._store.range(FEED, *_ROWS)
        topics: set[UUID] = set()
        for entry in entries:
            found, was_told_all = self._take(entry)
            topics.update(found)
            is_complete &= was_told_all
        dead = [entry for entry in entries if entry.key.removeprefix(_ROWS[0]) not in live]
        # A row that is gone was a dead broker's: another reader has cleared it away, maybe before its last touches
        # were seen here.
        vanished = self._seen.keys() - {entry.key for entry in entries}
        if live - {entry.key.removeprefix(_ROWS[0]) for entry in entries}:
            # A broker that starts, or one of a version that does not write to the feed.
            is_complete = False
        if dead or vanished:
            is_complete = False
            for key in (*vanished, *(entry.key for entry in dead)):
                del self._seen[key]
            # Only as it was read: a broker that was taken for dead may have come back.
            await self._store.transact(
                [Transaction(FEED, {entry.key: entry.version}, {}, deletes=[entry.key]) for entry in dead]
            )
        self._has_missed = False
        return Changes(frozenset(topics), is_complete)

    def _take(self, entry: Entry) -> tuple[Iterable[UUID], bool]:
        """What a row tells that was not known, and whether that is all there was to tell."""
        seen = self._seen.setdefault(entry.key, _Seen(0, 0))
        if seen.version == entry.version:
            return (), True
        seen.version = entry.version
        try:
            row = codec.decode(entry.value, Touched, Address(FEED, entry.key))
        except CorruptObject as error:
            log.error("%s", error)
            return (), False
        known, seen.number = seen.number, row.number
        return row.after(known), row.since <= known
