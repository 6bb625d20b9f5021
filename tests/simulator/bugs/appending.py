"""Bugs on the way of a record into the log."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.log import commit, committer
from lakestream.metadata.log import partition as log
from lakestream.metadata.log.commit import Offer
from lakestream.metadata.log.head import Accepted, Head
from lakestream.metadata.store import ABSENT, Address, Transaction
from lakestream.metadata.topics import list as topics
from lakestream.model import StreamPartition
from lakestream.runtime import Runtime
from lakestream.stream.appending import append
from lakestream.stream.appending.flush import Appended, Uploaded
from lakestream.wal import WAL_PREFIX
from simulator.backends import SimulatedObjects
from simulator.bugs.registry import bug, staged, swapped
from simulator.faults import Aim
from simulator.scene import Stage

_OVERTAKING: Final = Stage(
    "log",
    (Aim("put wal", "slow", 0.5, 30), Aim("transact log", "late request", 0.1, 8)),
    scene={"brokers": 3, "producers": 2, "idempotent": 1.0, "batches_least": 5, "batches_most": 7, "sends_most": 12},
    stream={"predecessor_wait_ms": 0},
)
"""Batches that come before their predecessors, which land at another broker when their producer has gone on in another
epoch."""


@bug
def ack_before_commit() -> Iterator[None]:
    """The producer hears of its offset as soon as the object is uploaded."""
    real_offers, real_commit = Uploaded.offers, committer.Committer.commit
    ends: dict[StreamPartition, int] = {}

    def early(self: Uploaded, *given: Any) -> Any:
        for partition, appends in self.flush.appends.items():
            offset = ends.get(partition, 0)
            for each in appends:
                if not each.done.done():
                    each.done.set_result(Appended(offset, 0))
                offset += sum(batch.record_count for batch in each.batches)
        return real_offers(self, *given)

    async def commit(self: committer.Committer, offers: Sequence[Offer], verdicts: Any) -> None:
        await real_commit(self, offers, verdicts)
        for verdict, offer in ((verdicts[offer.partition], offer) for offer in offers):
            if isinstance(verdict, committer.Committed) and verdict.extents:
                ends[offer.partition] = verdict.extents[-1].end_offset

    with swapped(Uploaded, real_offers, early), swapped(committer.Committer, real_commit, commit):
        yield


@bug
def commit_before_upload() -> Iterator[None]:
    """The object is still on its way when the log already names it."""
    real = SimulatedObjects.put
    background: set[asyncio.Future[None]] = set()

    async def later(self: SimulatedObjects, key: str, parts: Sequence[Any], *, overwrite: bool = False) -> None:
        if not key.startswith(WAL_PREFIX):
            await real(self, key, parts, overwrite=overwrite)
            return
        task = asyncio.ensure_future(real(self, key, parts, overwrite=overwrite))
        background.add(task)
        task.add_done_callback(lambda done: (background.discard(done), done.cancelled() or done.exception()))

    with swapped(SimulatedObjects, real, later):
        yield


@staged(Stage("race"))
@bug
def commit_ignores_the_fence() -> Iterator[None]:
    """A generation below the fence commits all the same."""
    real = committer.decided_by_head

    def lenient(present: Head | None, offer: Any, *, unknown: bool) -> Any:
        if present is not None:
            present = msgspec.structs.replace(present, fence=0)
        return real(present, offer, unknown=unknown)

    with swapped(committer, real, lenient):
        yield


@bug
def retry_after_unknown_outcome() -> Iterator[None]:
    """A commit without reply is made again without a look at the session's mark."""
    real = committer.decided_by_head

    def blind(present: Head | None, offer: Any, *, unknown: bool) -> Any:
        if present is not None:
            present = msgspec.structs.replace(present, sessions={})
        return real(present, offer, unknown=unknown)

    with swapped(committer, real, blind):
        yield


@bug
def unknown_outcome_decided_by_the_extent() -> Iterator[None]:
    """An extent that the frontier has dropped is taken for one that was never written."""
    real_resume, real_decided = committer.Committer.resume, committer.decided_by_head

    async def look(self: Any, offers: Any, verdicts: Any) -> None:
        for offer in offers:
            if offer.partition not in verdicts:
                found = await log.read_extents(self.store, offer.partition)
                ours = [extent for extent in found if extent.object_key == offer.object_key]
                if ours:
                    counts = [batch.record_count for batch in offer.batches]
                    bases = accumulate(counts[:-1], initial=ours[0].base_offset)
                    verdicts[offer.partition] = committer.Committed(tuple(map(Accepted, bases)), (), 0)
        await real_resume(self, offers, verdicts)

    def blind(present: Head | None, offer: Any, *, unknown: bool) -> Any:
        if present is not None and unknown:
            present = msgspec.structs.replace(present, sessions={})
        return real_decided(present, offer, unknown=unknown)

    with swapped(committer.Committer, real_resume, look), swapped(committer, real_decided, blind):
        yield


@staged(
    Stage(
        aims=(Aim("transact log", "lost reply", 0.3, 20),),
        scene={"collects": 1.0, "rest_most_s": 0.1},
        pipeline={"generation_interval_ms": 20, "grace_ms": 0},
    )
)
@bug
def session_mark_dropped_too_early() -> Iterator[None]:
    """Marks go with every raise of the fence, above it or not."""

    def forgetful(present: Head, fence: int) -> Head:
        return msgspec.structs.replace(present, fence=fence, sessions={})

    real = log.live_marks
    with swapped(log, real, forgetful), swapped(commit, real, forgetful):
        yield


@bug
def counter_derived_from_the_last_extent() -> Iterator[None]:
    """Once the frontier has dropped the last extent, the log starts again."""
    real = committer.decide

    def decide(head: Head, *more: Any) -> Any:
        if head.frontier == head.next_offset > 0:
            head = msgspec.structs.replace(head, next_offset=0)
        return real(head, *more)

    with swapped(committer, real, decide):
        yield


@bug
def sequence_wraparound() -> Iterator[None]:
    """After 2147483647 a producer's sequence is expected to go on counting."""
    with _sequence_span(1 << 40):
        yield


@bug
def duplicate_answered_with_a_wrong_offset() -> Iterator[None]:
    """A retry gets the offset of the producer's newest batch."""
    real = commit.refusal_of

    def refusal(state: Any, batch: Any) -> Any:
        found = real(state, batch)
        if found is not None and found.refusal == commit.DUPLICATE and found.base_offset >= 0:
            return Accepted(state.runs[-1].base_offset + 1, commit.DUPLICATE)
        return found

    with swapped(commit, real, refusal):
        yield


@bug
def stale_producer_state() -> Iterator[None]:
    """A producer's row is believed as it was first read, across lost races and beyond."""
    real = committer.producer_state
    first: dict[tuple[str, str], Any] = {}

    def believed(row: Any, address: Address) -> Any:
        found = real(row, address)
        return found if found is None else first.setdefault(address, found)

    with swapped(committer, real, believed):
        yield


@bug
def sequences_checked_in_the_cache_alone() -> Iterator[None]:
    """A broker that does not know a producer believes that nobody does."""
    with swapped(committer, committer.producer_state, lambda row, address: None):
        yield


@staged(_OVERTAKING)
@bug
def old_epoch_accepted() -> Iterator[None]:
    """What a producer gave up lands after what it sent in its next epoch."""
    real = commit.refusal_of

    def refusal(state: Any, batch: Any) -> Any:
        found = real(state, batch)
        return None if found is not None and found.refusal == commit.FENCED else found

    with swapped(commit, real, refusal):
        yield


@bug
def any_sequence_begins() -> Iterator[None]:
    """A producer without a row may begin with any sequence: its second batch overtakes the first."""
    real = commit.refusal_of

    def refusal(state: Any, batch: Any) -> Any:
        return None if state is None else real(state, batch)

    with swapped(commit, real, refusal):
        yield


@bug
def lower_sequence_taken_for_a_duplicate() -> Iterator[None]:
    """The second batch begins, and the first, which never landed, is older: it must have been there."""
    real = commit.refusal_of

    def refusal(state: Any, batch: Any) -> Any:
        found = None if state is None else real(state, batch)
        if found is not None and found.refusal == commit.AWAITED and state.epoch == batch.producer_epoch and state.runs:
            behind = (state.runs[-1].last_sequence - batch.last_sequence) % commit.SEQUENCE_SPAN
            return Accepted(-1, commit.DUPLICATE) if behind < commit.SEQUENCE_SPAN // 2 else found
        return found

    with swapped(commit, real, refusal):
        yield


@staged(_OVERTAKING)
@bug
def gap_told_without_closing_the_epoch() -> Iterator[None]:
    """A producer is sent into a new epoch while attempts of the old one can still land."""
    real = committer.decide

    def decide(*given: Any) -> Any:
        decision = real(*given)
        kept = {producer: state for producer, state in decision.producers.items() if not state.closed}
        return replace(decision, producers=kept)

    with swapped(committer, real, decide):
        yield


@staged(
    Stage(
        "log",
        (Aim("transact log", "slow", 0.4, 40), Aim("transact log", "lost reply", 0.2, 10)),
        scene={"producers": 2, "batches_least": 5, "batches_most": 7},
        stream={"flush_interval_ms": 1, "flushes_in_flight": 3},
    )
)
@bug
def two_commit_loops() -> Iterator[None]:
    """An appender that was started twice commits two flushes at once, and they overwrite each other's mark."""
    real = append.Appender.start
    resume = committer.Committer.resume
    commit_one = committer.Committer.commit
    loops: set[asyncio.Task[None]] = set()

    async def twice(self: append.Appender, stopped: Any, cluster: str) -> None:
        await real(self, stopped, cluster)
        loops.add(asyncio.create_task(self.commit_forever()))

    def unguarded(step: Any) -> Any:
        async def alone(self: committer.Committer, offers: Any, verdicts: Any) -> None:
            await step(committer.Committer(self.store), offers, verdicts)

        return alone

    with (
        swapped(append.Appender, real, twice),
        swapped(committer.Committer, commit_one, unguarded(commit_one)),
        swapped(committer.Committer, resume, unguarded(resume)),
    ):
        yield


@staged(Stage("recreation", (Aim("transact log", "repeated request", 0.3, 20),)))
@bug
def late_creation_of_a_log() -> Iterator[None]:
    """A head is made wherever there is none: a request that arrives once more brings a deleted log back."""

    async def create(store: Any, partition: StreamPartition, first_offset: int) -> None:
        at, head = log.head_address(partition), Head(next_offset=first_offset, frontier=first_offset)
        await store.transact([Transaction(at.shard, {at.key: ABSENT}, {at.key: codec.encode(head, at)})])

    with swapped(topics, topics.create_head, create):
        yield


@bug
def delay_from_the_global_random() -> Iterator[None]:
    """A broker asks for chance where the seed does not rule."""
    real = append.Appender.__init__

    class Global(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return random.uniform(a, b)

    def begin(self: append.Appender, store: Any, objects: Any, name: str, runtime: Runtime, *more: Any) -> None:
        real(self, store, objects, name, replace(runtime, random=Global(1)), *more)

    with swapped(append.Appender, real, begin):
        yield


@contextmanager
def _sequence_span(span: int) -> Iterator[None]:
    real, commit.SEQUENCE_SPAN = commit.SEQUENCE_SPAN, span
    try:
        yield
    finally:
        commit.SEQUENCE_SPAN = real
