"""Whoever looks after the table: the real code of merges, folds and retention, on files as the simulation has them."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import msgspec
import pyarrow as pa

from lakestream.errors import ObjectMissing, RetryableError, UnknownStream
from lakestream.frontier.upkeep import compaction
from lakestream.frontier.upkeep.maintenance import Maintenance
from lakestream.metadata.topics.list import Topics
from lakestream.model import NO_METRICS, DataFile
from lakestream.table.parquet.writer import WrittenStats
from lakestream.table.reading.deletes import Deleted
from lakestream.table.reading.shares import Share, Shares
from lakestream.table.rewriting.rewriter import Keep, Rewritten
from simulator.backends import SimulatedObjects
from simulator.batches import TIMESTAMP_MS, Row
from simulator.policies import is_tombstone, key_of
from simulator.tables import encode_rows, read_rows
from simulator.world import Process

if TYPE_CHECKING:
    from simulator.history import History

_REST_MOST_S: Final = 0.15


@contextmanager
def small_folds() -> Iterator[None]:
    """A fold takes few rows and learns few keys at once, so that there is more to do than one can."""
    with patch.object(compaction, "MAX_FOLD_ROWS", 4), patch.object(compaction, "MAX_KEY_ROWS", 8):
        yield


class KeeperActor:
    """Passes over the table until the faults stop; crashes, sleeps and comes back. It may run beside another one: its
    lease is only courtesy."""

    def __init__(self, history: "History", number: int) -> None:
        self._history = history
        self._name = f"keeper{number}"
        self.is_at_work = False

    async def live(self) -> None:
        world = self._history.world
        while not world.is_calm:
            process = world.process(self._name)
            # Waited for, not awaited: a crash cancels the work, the end of the history this actor.
            await asyncio.wait([process.start(self._work(process))])
            await asyncio.sleep(world.random.uniform(0.01, 1.0))
        await world.settled.wait()

    async def _work(self, process: Process) -> None:
        history, world = self._history, self._history.world
        runtime, attempts = process.runtime(), world.random.choice((1, 3, 20))
        settings = msgspec.structs.replace(history.scene.pipeline, min_merge_files=2, max_commit_attempts=attempts)
        maintenance = Maintenance(
            history.lake(runtime, settings),
            Topics(history.store, runtime),
            name=f"{self._name}-{runtime.new_id()}",
            respect_leases=world.chance(0.5),
            shares=SimulatedShares(history.objects),
            rewriter=SimulatedRewriter(history.objects),  # type: ignore[arg-type]
        )
        self.is_at_work = True
        try:
            while not world.is_calm:
                await self._pass(maintenance)
                if history.policy.deletes and world.chance(0.3):
                    await self._delete_records()
                await asyncio.sleep(world.random.uniform(0.0, _REST_MOST_S))
        finally:
            self.is_at_work = False

    async def _pass(self, maintenance: Maintenance) -> None:
        history, world = self._history, self._history.world
        try:
            done = await maintenance.run()
        except RetryableError as error:
            world.trace(f"{self._name} stops short: {error}")
            return
        for step in done.steps:
            world.trace(f"{self._name}: {step.action}, {step.about}")
        for _, failure in done.failures:
            world.trace(f"{self._name} leaves the table: {failure}")
            if not isinstance(failure, RetryableError | UnknownStream | ObjectMissing):
                history.auditor.fail(f"I5: {self._name} reports {failure}")

    async def _delete_records(self) -> None:
        """As an owner does, through any broker, up to any record that there is."""
        history, world = self._history, self._history.world
        partition = world.random.choice(history.partitions())
        start, end = history.watcher.log_start(partition), history.watcher.end_offset(partition)
        before = world.random.randint(start, end)
        try:
            reached = await history.broker().call(lambda streams: streams.delete_records(partition, before))
        except (RetryableError, UnknownStream) as error:
            world.trace(f"{self._name} deletes no records: {error}")
            return
        world.trace(f"{self._name}: delete records of {partition.index} before {before}")
        if partition.topic_id not in history.auditor.gone and not before <= reached:
            history.auditor.fail(f"I3: records before {before} were to be deleted, and the log begins at {reached}")


class SimulatedRewriter:
    """As `Rewriter`: the same rows in fewer files."""

    def __init__(self, objects: SimulatedObjects) -> None:
        self._objects = objects

    async def rewrite(
        self,
        files: Sequence[DataFile],
        deletes: Sequence[Any],
        *,
        shape: Any,
        own_file_bytes: int,
        compression: Any,
        keep: Keep | None = None,
        layout: Any = None,
        order: Any = None,
        change: Callable[[Any], Any] | None = None,
    ) -> list[Rewritten]:
        found = sorted([row for file in files for row in await read_rows(self._objects, file)])
        if keep is not None and found:
            found = [row for row, stays in zip(found, keep(_arrow(found)).tolist(), strict=True) if stays]
        if change is not None:
            found = change(found)
        groups: dict[int, list[Row]] = {}
        for row in found:
            groups.setdefault(row.partition if own_file_bytes == 1 else 0, []).append(row)
        return [_rewritten(rows) for rows in groups.values()]

    async def read(
        self, file: DataFile, deleted: Deleted, columns: Sequence[str], take: Callable[[pa.Table], None]
    ) -> None:
        take(_arrow(await read_rows(self._objects, file)).select(columns))

    async def deleted(self, deletes: Sequence[Any]) -> Deleted:
        return Deleted([])


class SimulatedShares(Shares):
    """Reads files as the simulation keeps them."""

    def __init__(self, objects: SimulatedObjects) -> None:
        super().__init__(objects)
        self._objects = objects

    async def _read(self, file: DataFile) -> Mapping[int, Share]:
        found: dict[int, list[int]] = {}
        for row in await read_rows(self._objects, file):
            found.setdefault(row.partition, []).append(row.offset)
        return {
            partition: Share(
                min(offsets), max(offsets), TIMESTAMP_MS, file.size_bytes * len(offsets) // file.record_count
            )
            for partition, offsets in found.items()
        }


def _arrow(rows: Sequence[Row]) -> pa.Table:
    return pa.table(
        {
            "_stream_partition": pa.array([row.partition for row in rows], pa.int32()),
            "_offset": pa.array([row.offset for row in rows], pa.int64()),
            "_key": pa.array([key_of(row.value) for row in rows], pa.binary()),
            "_value": pa.array([None if is_tombstone(row.value) else row.value for row in rows], pa.binary()),
            "_kind": pa.array([int(is_tombstone(row.value)) for row in rows], pa.int32()),
        }
    )


def _rewritten(rows: Sequence[Row]) -> Rewritten:
    data = encode_rows(rows)
    offsets = [row.offset for row in rows]
    stats = WrittenStats(
        record_count=len(rows),
        partition_min=rows[0].partition,
        partition_max=rows[-1].partition,
        offset_min=min(offsets),
        offset_max=max(offsets),
        timestamp_max_ms=TIMESTAMP_MS,
        size_bytes=len(data),
        footer_checksum=0,
        metrics=NO_METRICS,
    )
    return Rewritten(data, stats, 0)
