"""What the pipeline tells others of itself: one small row per topic, written when something happened to it.

Rows are for people to read. Nothing is decided by them: what is done stands in the table.
"""

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

import msgspec

from lakestream.frontier.moving.worker import Tick
from lakestream.metadata import codec
from lakestream.metadata.store import Address, Store, Transaction

_SHARD: Final = "pipeline"
_TOPICS: Final = ("topic/", "topic0")


class TopicStatus(msgspec.Struct, frozen=True, array_like=True):
    """`worker` wrote it. `committed_ms` is 0 if no commit is known. `error` is empty unless the topic is quarantined,
    then until `retry_ms` and after `failures` tries in a row."""

    topic_id: UUID
    worker: str
    committed_ms: int = 0
    committed_records: int = 0
    error: str = ""
    failures: int = 0
    retry_ms: int = 0


class StatusBoard:
    """One worker's hand on the rows. A row that could not be written is written with the next that can."""

    def __init__(self, store: Store, worker: str, *, stale_after_ms: int) -> None:
        """An error of another worker is taken down when that has not tried again for so long and this one, which looks
        at the same topics, has not met it."""
        self._store = store
        self._worker = worker
        self._stale_after_ms = stale_after_ms
        self._rows: dict[UUID, TopicStatus] | None = None

    async def post(self, tick: Tick, failing: Collection[UUID], now_ms: int) -> None:
        """At most one transaction, and none if nothing happened."""
        if self._rows is None:
            self._rows = await read_status(self._store)
        changed = self._changed(self._rows, tick, failing, now_ms)
        if changed:
            puts = {
                _key(topic_id): codec.encode(row, Address(_SHARD, _key(topic_id))) for topic_id, row in changed.items()
            }
            await self._store.transact([Transaction(_SHARD, {}, puts)])
            self._rows |= changed

    async def tidy(self, present: Collection[UUID]) -> None:
        """Takes down the rows of topics that are no more."""
        rows = await read_status(self._store)
        gone = [topic_id for topic_id in rows if topic_id not in present]
        if gone:
            await self._store.transact([Transaction(_SHARD, {}, {}, deletes=[_key(topic_id) for topic_id in gone])])
        self._rows = {topic_id: row for topic_id, row in rows.items() if topic_id in present}

    def _changed(
        self, rows: Mapping[UUID, TopicStatus], tick: Tick, failing: Collection[UUID], now_ms: int
    ) -> dict[UUID, TopicStatus]:
        changed: dict[UUID, TopicStatus] = {}
        for row in rows.values():
            if row.error and row.topic_id not in failing and self._is_over(row, now_ms):
                changed[row.topic_id] = msgspec.structs.replace(
                    row, worker=self._worker, error="", failures=0, retry_ms=0
                )
        for done in tick.commits:
            changed[done.topic_id] = TopicStatus(done.topic_id, self._worker, now_ms, done.record_count)
        for failure in tick.failures:
            known = changed.get(failure.topic_id) or rows.get(failure.topic_id)
            changed[failure.topic_id] = TopicStatus(
                failure.topic_id,
                self._worker,
                known.committed_ms if known else 0,
                known.committed_records if known else 0,
                str(failure.error),
                failure.failures,
                now_ms + failure.retry_in_ms,
            )
        return changed

    def _is_over(self, row: TopicStatus, now_ms: int) -> bool:
        return row.worker == self._worker or now_ms > row.retry_ms + self._stale_after_ms


class StatusReader:
    """The same as `read_status`, for whoever asks again and again: a row that has not changed is not decoded again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[int, TopicStatus]] = {}

    async def read(self) -> dict[UUID, TopicStatus]:
        known, self._known = self._known, {}
        for entry in await self._store.range(_SHARD, *_TOPICS):
            row = known.get(entry.key)
            if row is None or row[0] != entry.version:
                decoded = codec.decode_all([entry], TopicStatus, _SHARD)
                row = (entry.version, decoded[0]) if decoded else None
            if row is not None:
                self._known[entry.key] = row
        return {row.topic_id: row for _, row in self._known.values()}


async def read_status(store: Store) -> dict[UUID, TopicStatus]:
    """Of all topics that a worker has told of. A damaged row is left out and logged."""
    entries = await store.range(_SHARD, *_TOPICS)
    return {row.topic_id: row for row in codec.decode_all(entries, TopicStatus, _SHARD)}


def _key(topic_id: UUID) -> str:
    return f"topic/{topic_id.hex}"
