"""Inserts: rows that an engine's commit adds without offsets, on their way into the log as records.

Each has one row, under its topic and the engine's snapshot id, which says how far it came:

1. `begun`: the id of the producer that appends it, and the session that its WAL objects are named after. The objects
   are uploaded after this row is there and before the next step, so the collector, which reads these rows before the
   extents, never takes one of them that may still be needed.
2. `decided`: which bytes of which objects are its batches, for which partitions, with their sequences from 0. From here
   on everybody rolls it forward and nobody back: whoever appends a batch again is told its first offset by the log.
3. `appended`: all of it is in the log. Once the table holds it and the engine's files are deleted, the row gives way to
   a short one that answers a commit that is sent again.

A row is only changed by whoever knows its version. One that was begun and never decided is given up after a while.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Store, Transaction

_SHARD: Final = "inserts"
_LIVE: Final = "live/"
_DONE: Final = "done/"
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


class LiveInsert(NamedTuple):
    insert: Insert
    version: int


class Inserts:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, topic_id: UUID, snapshot_id: int) -> LiveInsert | DoneInsert | None:
        live, done = _address(_LIVE, topic_id, snapshot_id), _address(_DONE, topic_id, snapshot_id)
        found, answered = await self._store.get([live, done])
        if answered is not None:
            return codec.decode(answered.value, DoneInsert, done)
        return None if found is None else LiveInsert(codec.decode(found.value, Insert, live), found.version)

    async def put(self, insert: Insert, version: int = ABSENT) -> LiveInsert | None:
        """Makes the row, or changes the one that has this version. None: somebody else was faster."""
        live, done = _addresses(insert)
        change = Transaction(_SHARD, {live.key: version, done.key: ABSENT}, {live.key: codec.encode(insert, live)})
        [outcome] = await self._store.transact([change])
        return LiveInsert(insert, outcome.version) if isinstance(outcome, Applied) else None

    async def finish(self, live: LiveInsert, done: DoneInsert) -> bool:
        """False: somebody else was faster."""
        row, answered = _addresses(live.insert)
        put = {answered.key: codec.encode(done, answered)}
        [outcome] = await self._store.transact([Transaction(_SHARD, {row.key: live.version}, put, deletes=[row.key])])
        return isinstance(outcome, Applied)

    async def drop(self, live: LiveInsert) -> bool:
        """Of one that was begun only. False: somebody else was faster."""
        row, _ = _addresses(live.insert)
        [outcome] = await self._store.transact([Transaction(_SHARD, {row.key: live.version}, {}, deletes=[row.key])])
        return isinstance(outcome, Applied)

    async def live(self) -> list[LiveInsert]:
        """Those under way. A damaged row is an error: what it names must not be taken for dead."""
        entries = await self._store.range(_SHARD, _LIVE, _LIVE + _END)
        return [
            LiveInsert(codec.decode(entry.value, Insert, Address(_SHARD, entry.key)), entry.version)
            for entry in entries
        ]

    async def forget(self, before_ms: int, after: str = "") -> str:
        """Answers that nobody waits for any more go: a page of them, behind `after`. Where the next begins; empty: at
        the start. What is sent again later finds the engine's files gone."""
        entries = await self._store.range(_SHARD, after or _DONE, _DONE + _END, limit=_PAGE)
        for entry in entries:
            if codec.decode(entry.value, DoneInsert, Address(_SHARD, entry.key)).done_ms < before_ms:
                gone = Transaction(_SHARD, {entry.key: entry.version}, {}, deletes=[entry.key])
                await self._store.transact([gone])
        return entries[-1].key + "\0" if len(entries) == _PAGE else ""


def producers_of(found: Sequence[LiveInsert]) -> frozenset[int]:
    return frozenset(each.insert.producer_id for each in found)


def sessions_of(found: Sequence[LiveInsert]) -> frozenset[str]:
    """Whose objects are needed, or may be."""
    return frozenset(each.insert.session for each in found)


def _addresses(insert: Insert) -> tuple[Address, Address]:
    place = insert.topic_id, insert.snapshot_id
    return _address(_LIVE, *place), _address(_DONE, *place)


def _address(kind: str, topic_id: UUID, snapshot_id: int) -> Address:
    return Address(_SHARD, f"{kind}{topic_id.hex}/{snapshot_id & (1 << 64) - 1:016x}")
