"""Rows without offsets, which an engine's commit brings, made records: all of them, once, however often it is sent.

    read → begun → upload → decided → append → cut → the engine's files deleted → done

`metadata.inserts` says what each step promises. Until `decided` a crash leaves nothing behind but objects that no log
names; from there on whoever comes next rolls the insert forward: the same commit sent again, through any door, or the
pass that every door makes over what is under way (`resume`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from lakestream.catalog.engines.unplaced import Unplaced
from lakestream.catalog.port import Named
from lakestream.errors import (
    Conflict,
    LakestreamError,
    RetryableError,
    StorageError,
    TableRefused,
    Unavailable,
    UnknownStream,
)
from lakestream.frontier.moving.fresh import Freshness
from lakestream.metadata.counters import current_generation, reserve_producer_ids
from lakestream.metadata.inserts import DoneInsert, Insert, Inserts, LiveInsert, UndecidedInsert
from lakestream.metadata.store import Store
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.metadata.topics.option_list import NO_VALIDATION, VALUE_FORMAT
from lakestream.metadata.topics.options import batch_rules
from lakestream.metadata.topics.tables import value_subject
from lakestream.metrics import InsertMetrics
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime
from lakestream.schemas.codecs.json.codec import insert_format
from lakestream.schemas.growing import fits, is_text
from lakestream.schemas.shapes import format_of
from lakestream.stream.inserting.appending import InsertAppender
from lakestream.stream.inserting.batching import Batching
from lakestream.table.parquet.unplaced import WHOLE, UnplacedReader, WrittenBy
from lakestream.table.reading.files import key_in
from lakestream.table.shape import TableShape, ValueSchema
from lakestream.table.view import View
from lakestream.wal import parse_key

_log = logging.getLogger(__name__)

OPTION: Final = "lakestream.table.inserts"
MOST_BYTES: Final = 128 * 1024 * 1024
"""Of one insert, as columns: a door holds it in memory about three times."""
_GONE: Final = -1
_ROUNDS_MOST: Final = 20
_LOOK_AGAIN_S: Final = 0.2
_TAKE_OVER_MS: Final = 10_000
"""An insert that another process began so long ago, and has not decided, is begun anew. Courtesy, never proof."""
_RESUME_MS: Final = 5_000
"""One that is decided is left to the process that began it for so long."""
GIVE_UP_MS: Final = 600_000
KEEP_MS: Final = 86_400_000
_RESUMED_MOST: Final = 50
_UNFINISHED: Final = (Freshness.FAILED, Freshness.LATE)


@dataclass(frozen=True, slots=True)
class Around:
    """What an inserter needs of the rest. `cut`: brings a topic's table up to date. `named`: what the table names.
    `latest`: a view of the table with the columns of the schema by which values are written now, and that schema."""

    cut: Callable[[UUID], Awaitable[Freshness]]
    named: Callable[[UUID], Awaitable[Named]]
    latest: Callable[[Topic], Awaitable[tuple[View, ValueSchema | None]]]
    max_batch_bytes: int
    max_bytes: int = MOST_BYTES


@dataclass(slots=True)
class _Busy:
    """Commits that this process is at work on; who comes with one of them waits."""

    locks: dict[tuple[UUID, int], tuple[asyncio.Lock, int]] = field(default_factory=dict)

    @contextmanager
    def lock(self, key: tuple[UUID, int]) -> Iterator[asyncio.Lock]:
        lock, users = self.locks.get(key, (None, 0))
        lock = lock or asyncio.Lock()
        self.locks[key] = (lock, users + 1)
        try:
            yield lock
        finally:
            lock, users = self.locks.pop(key)
            if users > 1:
                self.locks[key] = (lock, users - 1)


class Inserter:
    """Implements `catalog.engines.unplaced.TakeRows`."""

    def __init__(
        self,
        store: Store,
        bucket: ObjectStore,
        topics: Topics,
        reader: UnplacedReader,
        runtime: Runtime,
        around: Around,
        metrics: InsertMetrics | None = None,
    ) -> None:
        self._store = store
        self._bucket = bucket
        self._topics = topics
        self._reader = reader
        self._runtime = runtime
        self._around = around
        self._metrics = metrics or InsertMetrics()
        self._inserts = Inserts(store)
        self._appender = InsertAppender(store, bucket, self._inserts, runtime)
        self._busy = _Busy()
        self._producer_ids = iter(range(0))
        self._forget_after = ""
        self._left: set[str] = set()
        """Sessions of inserts that were begun here and whose upload failed."""

    async def is_taken(self, topic_id: UUID, snapshot_id: int) -> bool:
        with self._busy.lock((topic_id, snapshot_id)) as lock:
            async with lock:
                return await self._is_ended(topic_id, snapshot_id)

    async def _is_ended(self, topic_id: UUID, snapshot_id: int) -> bool:
        """False: nobody has decided it yet."""
        found = await self._inserts.find(topic_id, snapshot_id)
        if isinstance(found, DoneInsert) or (isinstance(found, LiveInsert) and found.insert.step != "begun"):
            await self._end(found)
            return True
        return False

    async def take(self, rows: Unplaced) -> None:
        with self._busy.lock((rows.topic_id, rows.snapshot_id)) as lock:
            async with lock:
                with self._metrics.measure():
                    await self._take(rows)

    async def _take(self, rows: Unplaced) -> None:
        batching: Batching | None = None
        for _ in range(_ROUNDS_MOST):
            found = await self._inserts.find(rows.topic_id, rows.snapshot_id)
            if isinstance(found, DoneInsert) or (isinstance(found, LiveInsert) and found.insert.step != "begun"):
                await self._end(found)
                return
            if batching is None:
                try:
                    batching = await self._read(rows)
                except TableRefused:
                    # Whoever took the same commit meanwhile has deleted its files by now.
                    if await self._is_ended(rows.topic_id, rows.snapshot_id):
                        return
                    raise
            if isinstance(found, LiveInsert) and self._is_anothers(found):
                # Another process is at it: as a rule it has decided in a moment.
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            decided = await self._decide(rows, batching, found)
            if decided is not None:
                await self._roll(decided)
                self._metrics.inserted(sum(file.record_count for file in rows.files))
                return
        raise Unavailable("other processes take the same commit: sent again, it is told what became of its rows")

    def _is_anothers(self, begun: LiveInsert) -> bool:
        """Whether another process may be at work on it. What this one began it is not at work on any more."""
        age_ms = self._runtime.clock.now_ms() - begun.insert.begun_ms
        return begun.insert.session not in self._left and age_ms < _TAKE_OVER_MS

    async def _end(self, found: LiveInsert | DoneInsert) -> None:
        if isinstance(found, LiveInsert):
            await self._roll(found)
        elif found.record_count == _GONE:
            raise TableRefused("the topic was deleted before its rows were inserted")

    async def _read(self, rows: Unplaced) -> Batching:
        topic = (await self._topics.by_ids([rows.topic_id])).get(rows.topic_id)
        if topic is None:
            raise TableRefused("the topic of this table is being deleted: no rows can be inserted")
        if not topic.options.table_inserts:
            raise TableRefused(
                f"{sum(file.record_count for file in rows.files)} rows have no _offset, so they have no place in the"
                f" stream: produce new records to the topic instead. With {OPTION}=true topic {topic.name} takes rows"
                " of INSERT as new records"
            )
        now_ms = self._runtime.clock.now_ms()
        found = await self._reader.read(
            rows.files,
            await self._written_by(topic),
            partitions=topic.partitions,
            now_ms=now_ms,
            max_bytes=self._around.max_bytes,
        )
        return Batching(
            topic.partitions,
            rows.snapshot_id,
            batch_rules(topic.configs, self._around.max_batch_bytes),
            now_ms,
            found,
        )

    async def _written_by(self, topic: Topic) -> WrittenBy:
        try:
            view, latest = await self._around.latest(topic)
            written = _written_by(topic, view.shape, latest)
        except UnknownStream as error:
            raise TableRefused(f"the table of topic {topic.name} is being deleted: no rows can be inserted") from error
        if topic.options.key_validation != NO_VALIDATION:
            raise TableRefused(
                f"topic {topic.name} takes keys of its schemas only, and those of an INSERT are not looked at: set"
                " lakestream.key.schema.validation=none, or produce the records"
            )
        keys = view.shape.present(topic.options.key)
        told = ""
        if topic.options.schema_validation != NO_VALIDATION:
            told = f"topic {topic.name} takes values of its schemas only: say the columns of the value, not _value"
        return written._replace(keys=keys, bytes_trouble=told)

    async def _decide(
        self, rows: Unplaced, batching: Batching, found: LiveInsert | UndecidedInsert | None
    ) -> LiveInsert | None:
        """None: another process was faster with a step."""
        # Whoever begins it anew keeps the producer: of two attempts that both reach a log, by a fault of whatever kind
        # or because it is rebuilt, the second is a duplicate.
        producer_id = await self._producer_id() if found is None else found.producer_id
        packed = await self._runtime.off_loop(partial(batching.pack, producer_id))
        begun = await self._inserts.begin(
            Insert(
                topic_id=rows.topic_id,
                snapshot_id=rows.snapshot_id,
                step="begun",
                producer_id=producer_id,
                session=await self._appender.new_session(),
                generation=await current_generation(self._store),
                begun_ms=self._runtime.clock.now_ms(),
                files=rows.made,
            ),
            found,
        )
        if begun is None:
            return None
        self._left.add(begun.insert.session)
        objects = await self._appender.upload(begun, packed)
        self._left.discard(begun.insert.session)
        flush = max((parse_key(each.object_key).flush for each in objects), default=0)
        return await self._inserts.put(
            msgspec.structs.replace(begun.insert, step="decided", objects=objects, flush=flush), begun.version
        )

    async def _producer_id(self) -> int:
        found = next(self._producer_ids, None)
        if found is None:
            self._producer_ids = iter(await reserve_producer_ids(self._store))
            found = next(self._producer_ids)
        return found

    async def _roll(self, live: LiveInsert) -> None:
        """To its end, from wherever it is. Raises `Unavailable` if it is not all in the log."""
        for _ in range(_ROUNDS_MOST):
            try:
                moved = await self._appended(live)
            except UnknownStream as error:
                await self._inserts.finish(live, DoneInsert(self._runtime.clock.now_ms(), _GONE))
                raise TableRefused("the topic was deleted before all of its rows were inserted") from error
            except Conflict:
                moved = None
            if moved is not None:
                await self._finish(moved)
                return
            found = await self._inserts.find(live.insert.topic_id, live.insert.snapshot_id)
            if not isinstance(found, LiveInsert):
                return
            live = found
        raise Unavailable("other processes go on with the same insert: it is told how it ended when it is sent again")

    async def _appended(self, live: LiveInsert) -> LiveInsert | None:
        """None: somebody else has changed the row."""
        if live.insert.step == "appended":
            return live
        there = await self._appender.append(live)
        return await self._inserts.put(msgspec.structs.replace(there.insert, step="appended"), there.version)

    async def _finish(self, live: LiveInsert) -> None:
        """All of it is in the log: what fails here is done by a later pass, and is no failure of the insert."""
        try:
            told = await self._around.cut(live.insert.topic_id)
            if told in _UNFINISHED:
                return
            await self._delete_files(live.insert)
            count = sum(
                batch.record_count
                for each in live.insert.objects
                for section in each.sections
                for batch in section.batches
            )
            await self._inserts.finish(live, DoneInsert(self._runtime.clock.now_ms(), count))
        except LakestreamError as error:
            _log.warning("an insert into topic %s is in the log and is ended later: %s", live.insert.topic_id, error)

    async def _delete_files(self, insert: Insert) -> None:
        """The engine made them for a snapshot that will never be. Never one that the table names, whatever was said."""
        try:
            named = (await self._around.named(insert.topic_id)).paths
        except UnknownStream:
            return
        keys = [key_in(self._bucket, path) for path in insert.files if path not in named]
        await self._bucket.delete([key for key in keys if key is not None])

    async def resume(self) -> int:
        """One pass over inserts that are under way and left by their processes; how many were ended."""
        now_ms = self._runtime.clock.now_ms()
        ended = 0
        for live in (await self._inserts.live())[:_RESUMED_MOST]:
            key = (live.insert.topic_id, live.insert.snapshot_id)
            age_ms = now_ms - live.insert.begun_ms
            if key in self._busy.locks or age_ms < _RESUME_MS:
                continue
            try:
                if live.insert.step != "begun":
                    with self._busy.lock(key) as lock:
                        async with lock:
                            await self._roll(live)
                    ended += 1
                elif age_ms >= GIVE_UP_MS:
                    ended += await self._give_up(live)
            except TableRefused:
                ended += 1
            except (RetryableError, StorageError) as error:
                _log.warning("an insert into topic %s waits for its end: %s", live.insert.topic_id, error)
        return ended

    async def _give_up(self, live: LiveInsert) -> bool:
        """Nothing of it is in the log, nor will be: without its row it cannot be decided."""
        return await self._inserts.give_up(live, self._runtime.clock.now_ms())

    async def forget(self) -> None:
        """One page of answers to commits that were sent long ago."""
        self._forget_after = await self._inserts.forget(self._runtime.clock.now_ms() - KEEP_MS, self._forget_after)

    async def run(self, interval_ms: int) -> None:
        """Passes, until it is cancelled."""
        while True:
            try:
                await self.resume()
                await self.forget()
            except LakestreamError as error:
                _log.warning("inserts that are under way cannot be looked after now: %s", error)
            await asyncio.sleep(interval_ms / 1000)


def _written_by(topic: Topic, shape: TableShape, latest: ValueSchema | None) -> WrittenBy:
    wanted = topic.options.value_format
    if not shape.codec:
        return WrittenBy(shape)
    if not fits(shape.codec, wanted):
        told = f"topic {topic.name} has {VALUE_FORMAT}={wanted}, so rows may say their _value only"
        return WrittenBy(shape, trouble=told)
    if is_text(shape.codec):
        return WrittenBy(shape, WHOLE)
    if latest is None:
        subject = value_subject(topic.name, topic.options.value_subject)
        told = f"topic {topic.name} has no schema for its values: register one under the subject {subject}"
        return WrittenBy(shape, trouble=told)
    found = next((each for each in shape.schemas if each.schema_id == latest.schema_id), None)
    trouble = "the table cannot take it now" if found is None else found.trouble
    if trouble:
        told = f"values cannot be written by schema {latest.schema_id}, the latest: {trouble}"
        return WrittenBy(shape, latest.schema_id, told)
    is_json = format_of(shape) == "JSON"
    return WrittenBy(shape, latest.schema_id, format=insert_format(shape, latest.schema_id) if is_json else "")
