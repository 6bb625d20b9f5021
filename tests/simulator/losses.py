"""The metadata store is lost: at any moment the log must come back from what lies in the bucket.

Nothing is really lost: the bucket as it is and rows as they were saved some time before are copied, the log is rebuilt
from the copy by the real code, and held against what was acknowledged until then. The history goes on undisturbed.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from lakestream.bucket.found import find_wal
from lakestream.bucket.rebuilding import Rebuilt, rebuild
from lakestream.errors import ObjectMissing, StorageError
from lakestream.metadata import codec
from lakestream.metadata.counters import known_cluster
from lakestream.metadata.log.head import PRODUCERS, Head, ProducerState, shard_of
from lakestream.metadata.log.partition import decode_head, head_address
from lakestream.metadata.store import Address
from lakestream.model import StreamPartition
from lakestream.objects import ObjectInfo
from lakestream.wal import WAL_PREFIX
from simulator.batches import Row
from simulator.batches import rows as rows_of
from simulator.world import run_now

if TYPE_CHECKING:
    from simulator.history import History

LOSSES: Final = (7, 3)
"""In every so many histories, those with this remainder, the store is lost now and then. Not drawn: what all others
play stays the same."""
_REST_S: Final = (0.05, 0.8)
_LOOK_S: Final = 0.02

Producers = dict[StreamPartition, dict[int, ProducerState]]
Heads = dict[StreamPartition, Head]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A bucket at one moment, as far as its WAL goes."""

    objects: dict[str, bytes]
    written_at_ms: dict[str, int]
    url: str = "copy:/"

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        for key in sorted(self.objects):
            yield ObjectInfo(key, len(self.objects[key]), self.written_at_ms[key])

    async def get_tail(self, key: str, length: int) -> bytes:
        if key not in self.objects:
            raise ObjectMissing(f"{key} does not exist")
        return self.objects[key][-length:]

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> bytes:
        return self.objects[key][start : start + length]


class LossActor:
    """Saves rows, and later looks whether the log could be rebuilt. Records that went into a table and out of the WAL
    since rows were saved are known to nobody who wants to tell a retry from a first attempt: objects live longer than
    that, by default."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self._random = Random(history.seed)
        self._deletes_before = 0

    async def live(self) -> None:
        saved: tuple[Heads, Producers] = {}, {}
        while True:
            has_deleted = await self._rest()
            if not has_deleted and self._random.random() < self._history.scene.saves:
                saved = self._save()
            else:
                await self._lose(saved)

    async def _rest(self) -> bool:
        """Until objects are deleted, at the longest for a while: what tells of others goes then, too."""
        before = self._deletes()
        left_s = self._random.uniform(*_REST_S)
        while left_s > 0 and self._deletes() == before:
            await asyncio.sleep(min(left_s, _LOOK_S))
            left_s -= _LOOK_S
        return self._deletes() != before

    def _deletes(self) -> int:
        return sum(each.deletes for each in self._history.every_store())

    def _save(self) -> tuple[Heads, Producers]:
        heads: Heads = {}
        saved: Producers = {}
        self._deletes_before = self._deletes()
        for partition in self._history.partitions():
            shard = shard_of(partition)
            for entry in run_now(self._history.store.core.get([head_address(partition)])):
                found = decode_head(entry, partition)
                if found is not None:
                    heads[partition] = found.head
            saved[partition] = {
                int(entry.key.rpartition("/")[2], 16): codec.decode(
                    entry.value, ProducerState, Address(shard, entry.key)
                )
                for entry in run_now(self._history.store.core.range(shard, *PRODUCERS))
            }
        return heads, saved

    async def _lose(self, saved: tuple[Heads, Producers]) -> None:
        """All that is read of the present is read before the first wait."""
        history = self._history
        if history.topic is None or not all(map(history.watcher.is_there, history.partitions())):
            return
        wal: dict[str, bytes] = {}
        written_at_ms: dict[str, int] = {}
        for each in history.every_store():
            for key, data in each.objects.items():
                if key.startswith(WAL_PREFIX):
                    wal[key] = data
                    written_at_ms[key] = min(each.written_at_ms[key], written_at_ms.get(key, each.written_at_ms[key]))
        back = {key for each in history.every_store() for key in each.objects if each.is_back(key)}
        bucket = _Copy(wal, written_at_ms)
        view = history.watcher.view(history.topic.topic_id)
        in_table = history.watcher.table_rows(view)
        is_recent = self._deletes() == self._deletes_before
        acked = {partition: dict(history.auditor.acked.get(partition, {})) for partition in history.partitions()}
        cluster = run_now(known_cluster(history.store.core))
        found = await find_wal(bucket, () if cluster is None else (cluster,), lambda _: None)  # type: ignore[arg-type]
        heads, producers = saved
        for partition, told in acked.items():
            frontier = view.frontier[partition.index]
            try:
                rebuilt = await rebuild(
                    partition,
                    frontier,
                    found.sections.get(partition, ()),
                    found.fates.get(partition, {}),
                    producers.get(partition, {}),
                    bucket.get_range,
                    saved=heads.get(partition),
                )
            except StorageError as error:
                history.auditor.fail(f"I3: the log of partition {partition.index} cannot be rebuilt: {error}")
            tail = _tail(rebuilt, bucket, partition)
            history.world.trace(f"{partition.index} is rebuilt from {frontier} to {rebuilt.next_offset}")
            below = [row for row in in_table if row.partition == partition.index]
            rows = [*below, *(row for row in tail if row.offset >= frontier)]
            history.auditor.audit_rebuilt(partition, frontier, told, rows, rebuilt.appended, rebuilt.left_out)
            for extent in rebuilt.extents:
                at = history.watcher.entered_at(partition, extent.object_key, extent.position)
                if at is not None and extent.object_key not in back:
                    history.auditor.placed_again(partition, frontier, extent, at)
            if is_recent:
                history.auditor.count_rebuilt(rows)


def _tail(rebuilt: Rebuilt, bucket: _Copy, partition: StreamPartition) -> list[Row]:
    found: list[Row] = []
    for extent in rebuilt.extents:
        data = bucket.objects[extent.object_key][extent.position : extent.position + extent.length]
        found += rows_of(data, partition.index, extent.base_offset)
    return found
