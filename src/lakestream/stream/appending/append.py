"""Appending: buffer, upload, commit, acknowledge, in this order and no other.

Uploads run side by side; commits keep the order of the flushes. A flush waits while too many
are under way, so a slow store makes larger objects, not a longer queue.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress

from lakestream import wal
from lakestream.errors import LakestreamError, RequestError, RetryableError, StorageError, Unavailable, UnknownStream
from lakestream.metadata.counters import current_generation
from lakestream.metadata.log.committer import Committed, Committer, Gone, SessionLost, Unreadable, UploadAgain, Verdict
from lakestream.metadata.log.enlistment import Enlistment, InTransaction
from lakestream.metadata.log.head import Extent
from lakestream.metadata.store import Store
from lakestream.metrics import StreamMetrics
from lakestream.model import StreamPartition
from lakestream.objects.store import Buffer
from lakestream.records import BatchInfo, BatchRules, validate
from lakestream.runtime import Runtime
from lakestream.stream.appending.flush import Append, Appended, Flush, Uploaded
from lakestream.stream.appending.receipts import given_up, receipts_of
from lakestream.stream.settings import SMALL_FLUSH_BYTES, Pace, StreamSettings

log = logging.getLogger(__name__)

_RETRY_FIRST_MS = 20
_RETRY_MOST_MS = 2_000

OnCommitted = Callable[[StreamPartition, Sequence[Extent], Sequence[Append]], None]


class Appender:
    """`committed` is told each partition's new extents with the appends that fill them, right before the acks,
    `gone` each partition that is not there any more."""

    def __init__(
        self,
        store: Store,
        writer: wal.WalWriter,
        pace: Pace,
        runtime: Runtime,
        settings: StreamSettings,
        committed: OnCommitted,
        gone: Callable[[StreamPartition], None],
        metrics: StreamMetrics,
        enlistment: Enlistment | None = None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._runtime = runtime
        self._settings = settings
        self._committed = committed
        self._gone = gone
        self._metrics = metrics
        self._committer = Committer(store, predecessor_wait_ms=settings.predecessor_wait_ms, enlistment=enlistment)
        self._cluster = ""
        self._session = ""
        self._generation = 0
        self._flushes = 0
        self._receipts: list[wal.Receipt] = []
        self._buffer = Flush()
        self._buffered = asyncio.Event()
        self._full = asyncio.Event()
        self._pace = pace
        self._interval_s = self._pace.interval_ms / 1000
        self._expected = math.inf
        self._slots = asyncio.Semaphore(self._pace.flushes_in_flight)
        self._uploads: asyncio.Queue[tuple[Flush, asyncio.Task[Uploaded]]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self.settled: Callable[[Flush], None] = lambda flush: None
        """Told each flush when all of its appends have their outcome."""

    async def start(self, stopped: Callable[["asyncio.Task[None]"], None], cluster: str) -> None:
        """`stopped` is called with a task that ended; with an error it must never have ended. `cluster` is its id.
        Once only: a second commit loop would commit flushes out of their order."""
        self._cluster = cluster
        self._generation = await current_generation(self._store)
        if self._session:
            raise RuntimeError("the appender was started before: a broker has one commit loop")
        self._session = wal.session_name(self._runtime.new_id(), cluster)
        for run in (self._flush_all, self.commit_forever, self._follow_generation):
            task = asyncio.create_task(run())
            task.add_done_callback(stopped)
            self._tasks.append(task)

    async def stop(self) -> None:
        """What is buffered is still flushed, committed and acknowledged; nothing may be appended any more."""
        if self._tasks:
            flusher, committer, follower = self._tasks
            flusher.cancel()
            with suppress(asyncio.CancelledError):
                await flusher
            if self._buffer.appends:
                self._start_upload()
            await self._uploads.join()
            if self._receipts:
                with suppress(LakestreamError):
                    await self._upload(Flush())
            for task in (committer, follower):
                task.cancel()
            await asyncio.gather(committer, follower, return_exceptions=True)
            self._tasks = []

    def append(
        self,
        partition: StreamPartition,
        run: Buffer,
        batch: BatchInfo | None = None,
        transaction: InTransaction | None = None,
    ) -> "asyncio.Future[Appended]":
        """Takes the records in; the order of calls is the order in the log. The future holds the outcome."""
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        try:
            if batch is None:
                rules = BatchRules(self._settings.max_batch_bytes, transactional=transaction is not None)
                batch = validate(run, rules, self._runtime.clock.now_ms())
        except RequestError as error:
            done.set_exception(error)
            return done
        self._buffer.add(Append(partition, run, [batch], done, transaction))
        self._buffered.set()
        if self._buffer.size_bytes >= self._settings.flush_bytes or self._buffer.count >= self._expected:
            self._full.set()
        return done

    async def _flush_all(self) -> None:
        while True:
            await self._wait_for_data()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._full.wait()
            await self._slots.acquire()
            self._start_upload()

    async def _wait_for_data(self) -> None:
        """A broker that falls idle writes its last receipts, so that the log can be rebuilt from the bucket."""
        while not self._buffered.is_set():
            idle_s = self._settings.receipt_idle_ms / 1000 if self._receipts else None
            try:
                async with asyncio.timeout(idle_s):
                    await self._buffered.wait()
            except TimeoutError:
                with suppress(LakestreamError):
                    await self._upload(Flush())

    def _start_upload(self) -> None:
        flush, self._buffer = self._buffer, Flush()
        loaded = flush.size_bytes >= SMALL_FLUSH_BYTES
        self._interval_s = (self._pace.loaded_interval_ms if loaded else self._pace.interval_ms) / 1000
        self._expected = flush.count if self._pace.is_eager and not loaded else math.inf
        self._buffered.clear()
        self._full.clear()
        self._uploads.put_nowait((flush, asyncio.create_task(self._measured_upload(flush))))

    async def _measured_upload(self, flush: Flush) -> Uploaded:
        return await self._metrics.uploading(flush.size_bytes, self._upload(flush))

    async def _upload(self, flush: Flush, replaced: Sequence[wal.Receipt] = ()) -> Uploaded:
        """Retries under fresh names until the deadline: a PUT that seemed to fail may have landed. It is left to the
        collector, and given up in the footer of the object that replaces it."""
        deadline = asyncio.get_running_loop().time() + self._settings.upload_deadline_ms / 1000
        delay_ms = _RETRY_FIRST_MS
        receipts, self._receipts = [*replaced, *self._receipts], []
        sections = flush.sections()
        while True:
            self._flushes += 1
            number, generation, session = self._flushes, self._generation, self._session
            key = wal.object_key(generation, session, number)
            built = wal.build(sections, receipts, session=session, flush=number, generation=generation)
            try:
                stores = await self._writer.put(key, built.parts)
            except RetryableError as error:
                if sections:
                    receipts.append(given_up(key, flush.appends))
                if asyncio.get_running_loop().time() > deadline:
                    self._receipts = receipts + self._receipts
                    raise Unavailable(f"the object store did not take {key}: {error}; nothing was written") from error
                log.warning("upload of %s failed, trying again: %s", key, error)
                delay_ms = await self._back_off(delay_ms)
            except BaseException:
                self._receipts = receipts + self._receipts
                raise
            else:
                return Uploaded(flush, number, generation, session, key, built, stores)

    async def commit_forever(self) -> None:
        """Flushes in their order, each when its upload is done."""
        while True:
            flush, upload = await self._uploads.get()
            try:
                await self._metrics.committing(self._commit(flush, await upload))
            except LakestreamError as error:
                self._metrics.failed_flushes.inc()
                log.error("a flush of %d bytes failed: %s", flush.size_bytes, error)
                flush.fail(error)
            finally:
                self._slots.release()
                self._uploads.task_done()
                self.settled(flush)

    async def _commit(self, flush: Flush, uploaded: Uploaded) -> None:
        """Settles every append of the flush. Commits that outlive the store's silence are resumed, never guessed."""
        while True:
            offers = uploaded.offers(self._runtime.clock.now_ms())
            verdicts: dict[StreamPartition, Verdict] = {}
            step = self._committer.commit
            delay_ms = _RETRY_FIRST_MS
            while len(verdicts) < len(offers):
                try:
                    await step(offers, verdicts)
                except Unavailable as error:
                    log.warning("commit of %s is undecided, asking again: %s", uploaded.object_key, error)
                    step = self._committer.resume
                    delay_ms = await self._back_off(delay_ms)
            self._settle(uploaded, verdicts)
            receipts = receipts_of(uploaded.object_key, offers, verdicts)
            fenced = [partition for partition, verdict in verdicts.items() if isinstance(verdict, UploadAgain)]
            if not fenced:
                self._receipts += receipts
                return
            self._generation = await current_generation(self._store)
            uploaded = await self._upload(flush.only(fenced), receipts)

    def _settle(self, uploaded: Uploaded, verdicts: dict[StreamPartition, Verdict]) -> None:
        for partition, verdict in verdicts.items():
            appends = uploaded.flush.appends[partition]
            match verdict:
                case Committed():
                    self._committed(partition, verdict.extents, appends)
                    results = iter(verdict.results)
                    for append in appends:
                        append.settle([next(results) for _ in append.batches], verdict.log_start)
                case Gone():
                    self._gone(partition)
                    for append in appends:
                        append.fail(UnknownStream(f"{partition} does not exist any more"))
                case SessionLost():
                    self._session = wal.session_name(self._runtime.new_id(), self._cluster)
                    for append in appends:
                        append.fail(Unavailable("the outcome of this append is not known; send it again"))
                case Unreadable(error, unknown):
                    log.error("cannot append to %s-%d: %s", partition.topic_id, partition.index, error)
                    for append in appends:
                        append.fail(
                            Unavailable(f"whether this was appended is not known: {error}") if unknown else error
                        )
                case UploadAgain():
                    log.warning("%s is below the fence of %s: uploading again", uploaded.object_key, partition)

    async def _follow_generation(self) -> None:
        while True:
            await asyncio.sleep(self._settings.generation_check_ms / 1000)
            try:
                self._generation = await current_generation(self._store)
            except Unavailable:
                continue
            except StorageError as error:
                log.error("the WAL generation cannot be followed: %s", error)

    async def _back_off(self, delay_ms: int) -> int:
        """Sleeps a jittered delay; the next, longer one."""
        await asyncio.sleep(delay_ms / 1000 * self._runtime.random.uniform(0.5, 1.0))
        return min(delay_ms * 2, _RETRY_MOST_MS)
