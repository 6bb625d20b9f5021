"""Inserts: rows that an engine's commit adds without offsets, on their way into the log as records.

Each has one row, under its topic and the engine's snapshot id, which says how far it came:

1. `begun`: the id of the producer that appends it, and the session that its WAL objects are named after. The objects
   are uploaded after this row is there and before the next step, so the collector, which reads these rows before the
   extents, never takes one of them that may still be needed.
2. `decided`: which bytes of which objects are its batches, for which partitions, with their sequences from 0. From here
   on everybody rolls it forward and nobody back: whoever appends a batch again is told its first offset by the log.
3. `appended`: all of it is in the log. Once the table holds it and the engine's files are deleted, the row gives way to
   a short one that answers a commit that is sent again.

A row is only changed by whoever knows its version. One that was begun and never decided is given up after a while:
then a short row keeps its producer, for whoever begins the same insert anew. What was uploaded meanwhile tells nothing
but its producer, and a log that is rebuilt from the bucket must have the rows once.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Store, Transaction

_SHARD: Final = "inserts"
_LIVE: Final = "live/"
_DONE: Final = "done/"
_UNDECIDED: Final = "undecided/"
_END: Final = "\U0010ffff"
_PAGE: Final = 500

Step = Literal["begun", "decided", "appended"]


class InsertedBatch(msgspec.Struct, frozen=True, array_like=True):
    """`position` counts from the section's start."""

    position: int
    length: int
    record_count: int
    max_timestamp_ms: int
    base_sequence: int


class InsertedSection(msgspec.Struct, frozen=True, array_like=True):
    """One partition's batches in one object; `position` counts from the object's start."""

    partition: int
    position: int
    length: int
    checksum: int
    batches: tuple[InsertedBatch, ...]


class InsertedObject(msgspec.Struct, frozen=True, array_like=True):
    object_key: str
    generation: int
    sections: tuple[InsertedSection, ...]


class Insert(msgspec.Struct, frozen=True, array_like=True):
    """`objects` are in the order in which they are appended; a section that was copied into a newer one is only there.
    `files`: the engine's own, with which nothing is left to be done at the end but to delete them. `flush`: the number
    of the newest object that was ever named."""

    topic_id: UUID
    snapshot_id: int
    step: Step
    producer_id: int
    session: str
    generation: int
    begun_ms: int
    flush: int = 0
    objects: tuple[InsertedObject, ...] = ()
    files: tuple[str, ...] = ()


class DoneInsert(msgspec.Struct, frozen=True, array_like=True):
    """`record_count`: -1 if the topic was deleted before all of it was in the log."""

    done_ms: int
    record_count: int


class GivenUpInsert(msgspec.Struct, frozen=True, array_like=True):
    """Of one that was begun and never decided."""

    given_up_ms: int
    producer_id: int


class LiveInsert(NamedTuple):
    insert: Insert
    version: int

    @property
    def producer_id(self) -> int:
        return self.insert.producer_id


class UndecidedInsert(NamedTuple):
    given_up: GivenUpInsert
    version: int

    @property
    def producer_id(self) -> int:
        return self.given_up.producer_id


class Inserts:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, topic_id: UUID, snapshot_id: int) -> LiveInsert | UndecidedInsert | DoneInsert | None:
        live, done, undecided = _addresses(topic_id, snapshot_id)
        found, answered, left = await self._store.get([live, done, undecided])
        if answered is not None:
            return codec.decode(answered.value, DoneInsert, done)
        if found is not None:
            return LiveInsert(codec.decode(found.value, Insert, live), found.version)
        if left is not None:
            return UndecidedInsert(codec.decode(left.value, GivenUpInsert, undecided), left.version)
        return None

    async def begin(self, insert: Insert, found: LiveInsert | UndecidedInsert | None) -> LiveInsert | None:
        """Makes the row, instead of what was found. None: somebody else was faster."""
        live, done, undecided = _addresses(insert.topic_id, insert.snapshot_id)
        checks = {live.key: ABSENT, done.key: ABSENT, undecided.key: ABSENT}
        if found is not None:
            checks[live.key if isinstance(found, LiveInsert) else undecided.key] = found.version
        gone = [undecided.key] if isinstance(found, UndecidedInsert) else []
        return await self._put(insert, Transaction(_SHARD, checks, {live.key: codec.encode(insert, live)}, gone))

    async def put(self, insert: Insert, version: int) -> LiveInsert | None:
        """Changes the row that has this version. None: somebody else was faster."""
        live, done, _ = _addresses(insert.topic_id, insert.snapshot_id)
        change = Transaction(_SHARD, {live.key: version, done.key: ABSENT}, {live.key: codec.encode(insert, live)})
        return await self._put(insert, change)

    async def _put(self, insert: Insert, change: Transaction) -> LiveInsert | None:
        [outcome] = await self._store.transact([change])
        return LiveInsert(insert, outcome.version) if isinstance(outcome, Applied) else None

    async def finish(self, live: LiveInsert, done: DoneInsert) -> bool:
        """False: somebody else was faster."""
        row, answered, _ = _addresses(live.insert.topic_id, live.insert.snapshot_id)
        return await self._replace(row, live.version, answered, codec.encode(done, answered))

    async def give_up(self, live: LiveInsert, now_ms: int) -> bool:
        """Of one that was begun only. False: somebody else was faster."""
        row, _, undecided = _addresses(live.insert.topic_id, live.insert.snapshot_id)
        left = GivenUpInsert(now_ms, live.insert.producer_id)
        return await self._replace(row, live.version, undecided, codec.encode(left, undecided))

    async def _replace(self, row: Address, version: int, by: Address, value: bytes) -> bool:
        change = Transaction(_SHARD, {row.key: version}, {by.key: value}, deletes=[row.key])
        [outcome] = await self._store.transact([change])
        return isinstance(outcome, Applied)

    async def live(self) -> list[LiveInsert]:
        """Those under way. A damaged row is an error: what it names must not be taken for dead."""
        entries = await self._store.range(_SHARD, _LIVE, _LIVE + _END)
        return [
            LiveInsert(codec.decode(entry.value, Insert, Address(_SHARD, entry.key)), entry.version)
            for entry in entries
        ]

    async def forget(self, before_ms: int, after: str = "") -> str:
        """Answers that nobody waits for any more go, and what was given up: a page of them, behind `after`. Where the
        next begins; empty: at the start. What is sent again later finds the engine's files gone."""
        kind = _UNDECIDED if after.startswith(_UNDECIDED) else _DONE
        entries = await self._store.range(_SHARD, after or kind, kind + _END, limit=_PAGE)
        for entry in entries:
            if _ended_ms(entry) < before_ms:
                gone = Transaction(_SHARD, {entry.key: entry.version}, {}, deletes=[entry.key])
                await self._store.transact([gone])
        if len(entries) == _PAGE:
            return entries[-1].key + "\0"
        return _UNDECIDED if kind == _DONE else ""


def _ended_ms(entry: Entry) -> int:
    address = Address(_SHARD, entry.key)
    if entry.key.startswith(_DONE):
        return codec.decode(entry.value, DoneInsert, address).done_ms
    return codec.decode(entry.value, GivenUpInsert, address).given_up_ms


def producers_of(found: Sequence[LiveInsert]) -> frozenset[int]:
    return frozenset(each.producer_id for each in found)


def sessions_of(found: Sequence[LiveInsert]) -> frozenset[str]:
    """Whose objects are needed, or may be."""
    return frozenset(each.insert.session for each in found)


def _addresses(topic_id: UUID, snapshot_id: int) -> tuple[Address, Address, Address]:
    """Of the row while it is under way, of its answer, and of what is left of one that was given up."""
    place = topic_id, snapshot_id
    return _address(_LIVE, *place), _address(_DONE, *place), _address(_UNDECIDED, *place)


def _address(kind: str, topic_id: UUID, snapshot_id: int) -> Address:
    return Address(_SHARD, f"{kind}{topic_id.hex}/{snapshot_id & (1 << 64) - 1:016x}")
