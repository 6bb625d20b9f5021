"""Bugs on the way of a record into the log."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any
from unittest.mock import patch

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.log import commit, committer
from lakestream.metadata.log import partition as log
from lakestream.metadata.log.head import Accepted, Head
from lakestream.metadata.store import ABSENT, Transaction
from lakestream.metadata.topics import list as topics
from lakestream.model import StreamPartition
from lakestream.stream import append
from lakestream.stream.flush import Appended
from simulator.bugs.registry import bug


@bug
def ack_before_commit() -> Iterator[None]:
    """The producer hears of its offset as soon as the object is uploaded."""
    real = append.Appender._commit

    async def early(self: append.Appender, flush: Any, uploaded: Any) -> None:
        for partition, appends in flush.appends.items():
            known = self._committer._known.get(partition)
            offset = known.head.next_offset if known is not None else 0
            for each in appends:
                if not each.done.done():
                    each.done.set_result(Appended(offset, 0))
                offset += sum(batch.record_count for batch in each.batches)
        await asyncio.sleep(0.001)
        await real(self, flush, uploaded)

    with patch.object(append.Appender, "_commit", early):
        yield


@bug
def commit_before_upload() -> Iterator[None]:
    """The object is still on its way when the log already names it."""
    real = append.Appender._upload

    async def hasty(self: append.Appender, flush: Any) -> Any:
        put = self._objects.put

        async def later(key: str, parts: Sequence[Any], *, overwrite: bool = False) -> None:
            self._background = asyncio.ensure_future(put(key, parts, overwrite=overwrite))  # type: ignore[attr-defined]
            self._background.add_done_callback(lambda task: task.cancelled() or task.exception())  # type: ignore[attr-defined]

        with patch.object(self, "_objects", _Proxy(self._objects, put=later)):
            return await real(self, flush)

    with patch.object(append.Appender, "_upload", hasty):
        yield


@bug
def commit_ignores_the_fence() -> Iterator[None]:
    """A generation below the fence commits all the same."""
    real = committer._standing

    def lenient(present: Head | None, offer: Any, *, unknown: bool) -> Any:
        if present is not None:
            present = msgspec.structs.replace(present, fence=0)
        return real(present, offer, unknown=unknown)

    with patch.object(committer, "_standing", lenient):
        yield


@bug
def retry_after_unknown_outcome() -> Iterator[None]:
    """A commit without reply is made again without a look at the session's mark."""
    real = committer._standing

    def blind(present: Head | None, offer: Any, *, unknown: bool) -> Any:
        if present is not None:
            present = msgspec.structs.replace(present, sessions={})
        return real(present, offer, unknown=unknown)

    with patch.object(committer, "_standing", blind):
        yield


@bug
def unknown_outcome_decided_by_the_extent() -> Iterator[None]:
    """An extent that the frontier has dropped is taken for one that was never written."""
    real_resume, real_standing = committer.Committer.resume, committer._standing

    async def look(self: Any, offers: Any, verdicts: Any) -> None:
        for offer in offers:
            if offer.partition not in verdicts:
                found = await log.read_extents(self._store, offer.partition)
                ours = [extent for extent in found if extent.object_key == offer.object_key]
                if ours:
                    counts = [batch.record_count for batch in offer.batches]
                    bases = accumulate(counts[:-1], initial=ours[0].base_offset)
                    verdicts[offer.partition] = committer.Committed(tuple(map(Accepted, bases)), (), 0)
        await real_resume(self, offers, verdicts)

    def blind(present: Head | None, offer: Any, *, unknown: bool) -> Any:
        if present is not None and unknown:
            present = msgspec.structs.replace(present, sessions={})
        return real_standing(present, offer, unknown=unknown)

    with patch.object(committer.Committer, "resume", look), patch.object(committer, "_standing", blind):
        yield


@bug
def session_mark_dropped_too_early() -> Iterator[None]:
    """Marks go with every raise of the fence, above it or not."""

    def forgetful(present: Head, fence: int) -> Head:
        return msgspec.structs.replace(present, fence=fence, sessions={})

    with patch.object(log, "live_marks", forgetful), patch.object(commit, "live_marks", forgetful):
        yield


@bug
def counter_derived_from_the_last_extent() -> Iterator[None]:
    """Once the frontier has dropped the last extent, the log starts again."""
    real = committer._attempt

    def attempt(known: Any, *more: Any) -> Any:
        if known.head.frontier == known.head.next_offset > 0:
            known.head = msgspec.structs.replace(known.head, next_offset=0)
        return real(known, *more)

    with patch.object(committer, "_attempt", attempt):
        yield


@bug
def sequence_wraparound() -> Iterator[None]:
    """After 2147483647 a producer's sequence is expected to go on counting."""
    with patch.object(commit, "SEQUENCE_SPAN", 1 << 40):
        yield


@bug
def duplicate_answered_with_a_wrong_offset() -> Iterator[None]:
    """A retry gets the offset of the producer's newest batch."""
    real = commit._refusal

    def refusal(state: Any, batch: Any) -> Any:
        found = real(state, batch)
        if found is not None and found.refusal == commit.DUPLICATE and found.base_offset >= 0:
            return Accepted(state.runs[-1].base_offset + 1, commit.DUPLICATE)
        return found

    with patch.object(commit, "_refusal", refusal):
        yield


@bug
def stale_producer_state() -> Iterator[None]:
    """Producer rows are believed across a lost race, and beyond."""
    real = committer.Committer._remember

    def remember(self: Any, partition: StreamPartition, entry: Any) -> None:
        before = self._known.get(partition)
        real(self, partition, entry)
        if before is not None and partition in self._known:
            self._known[partition].producers = before.producers

    with patch.object(committer.Committer, "_remember", remember):
        yield


@bug
def sequences_checked_in_the_cache_alone() -> Iterator[None]:
    """A broker that does not know a producer believes that nobody does."""
    with patch.object(committer, "_producer_state", lambda row, address: None):
        yield


@bug
def old_epoch_accepted() -> Iterator[None]:
    """What a producer gave up lands after what it sent in its next epoch."""
    real = commit._refusal

    def refusal(state: Any, batch: Any) -> Any:
        found = real(state, batch)
        return None if found is not None and found.refusal == commit.FENCED else found

    with patch.object(commit, "_refusal", refusal):
        yield


@bug
def any_sequence_begins() -> Iterator[None]:
    """A producer without a row may begin with any sequence: its second batch overtakes the first."""
    real = commit._refusal

    def refusal(state: Any, batch: Any) -> Any:
        return None if state is None else real(state, batch)

    with patch.object(commit, "_refusal", refusal):
        yield


@bug
def lower_sequence_taken_for_a_duplicate() -> Iterator[None]:
    """The second batch begins, and the first, which never landed, is older: it must have been there."""
    real = commit._refusal

    def refusal(state: Any, batch: Any) -> Any:
        found = None if state is None else real(state, batch)
        if found is not None and found.refusal == commit.AWAITED and state.epoch == batch.producer_epoch and state.runs:
            behind = (state.runs[-1].last_sequence - batch.last_sequence) % commit.SEQUENCE_SPAN
            return Accepted(-1, commit.DUPLICATE) if behind < commit.SEQUENCE_SPAN // 2 else found
        return found

    with patch.object(commit, "_refusal", refusal):
        yield


@bug
def gap_told_without_closing_the_epoch() -> Iterator[None]:
    """A producer is sent into a new epoch while attempts of the old one can still land."""
    real = committer.decide

    def decide(*given: Any) -> Any:
        decision = real(*given)
        kept = {producer: state for producer, state in decision.producers.items() if not state.closed}
        return replace(decision, producers=kept)

    with patch.object(committer, "decide", decide):
        yield


@bug
def two_commit_loops() -> Iterator[None]:
    """An appender that was started twice commits two flushes at once, and they overwrite each other's mark."""
    real = append.Appender.start

    async def twice(self: append.Appender, stopped: Any, cluster: str) -> None:
        await real(self, stopped, cluster)
        self._second = asyncio.create_task(self._commit_all())  # type: ignore[attr-defined]

    with patch.object(append.Appender, "start", twice), patch.object(committer.Committer, "_alone", _unguarded):
        yield


async def _unguarded(self: Any, offers: Any, verdicts: Any, *, unknown: bool) -> None:
    if unknown:
        self._forget(offer.partition for offer in offers if offer.partition not in verdicts)
    await self._commit(offers, verdicts, unknown=unknown)


@bug
def late_creation_of_a_log() -> Iterator[None]:
    """A head is made wherever there is none: a request that arrives once more brings a deleted log back."""

    async def create(store: Any, partition: StreamPartition, first_offset: int) -> None:
        at, head = log.head_address(partition), Head(next_offset=first_offset, frontier=first_offset)
        await store.transact([Transaction(at.shard, {at.key: ABSENT}, {at.key: codec.encode(head, at)})])

    with patch.object(topics, "create_head", create):
        yield


@bug
def delay_from_the_global_random() -> Iterator[None]:
    """A broker asks for chance where the seed does not rule."""

    async def back_off(self: append.Appender, delay_ms: int) -> int:
        await asyncio.sleep(delay_ms / 1000 * random.uniform(0.5, 1.0))
        return delay_ms * 2

    with patch.object(append.Appender, "_back_off", back_off):
        yield


class _Proxy:
    """Another object's face with some methods changed."""

    def __init__(self, target: Any, **changed: Any) -> None:
        self._target = target
        self.__dict__.update(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)
