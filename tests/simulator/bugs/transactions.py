"""Bugs in transactions: who is in one, how it ends, and who sees what of it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import msgspec

from lakestream.coordination.transactions import coordinator, ending, enlisting
from lakestream.coordination.transactions.deciding import aborted_by_others
from lakestream.frontier.moving import fresh, stable
from lakestream.frontier.moving.whole import CommittedTransaction, EndedPart
from lakestream.metadata import codec
from lakestream.metadata.groups.model import CLAIM, PENDING
from lakestream.metadata.groups.model import shard_of as group_shard
from lakestream.metadata.log import ending as log_ending
from lakestream.metadata.log.ending import LogEnd
from lakestream.metadata.log.head import Head, ProducerState
from lakestream.metadata.store import Address, Store, Transaction
from lakestream.metadata.transactions import StoredTransaction, TransactionState
from lakestream.metadata.transactions.model import partition_key, shard_of
from lakestream.model import StreamPartition
from lakestream.stream.fetching import tails
from lakestream.stream.fetching.tails import Tail
from simulator.bugs.registry import swapped, transaction_bug


@transaction_bug
def marker_before_all_are_enlisted() -> Iterator[None]:
    """A partition joins without looking whether the end is prepared: it gets no marker."""
    real = enlisting.enlist

    async def enlist(
        store: Store,
        present: StoredTransaction,
        wanted: TransactionState,
        partitions: Collection[StreamPartition],
        groups: Collection[str] = (),
    ) -> tuple[bool, StoredTransaction | None]:
        if groups or wanted is not present.state:
            return await real(store, present, wanted, partitions, groups)
        shard = shard_of(wanted.transactional_id)
        keys = map(partition_key, partitions)
        await store.transact(
            [Transaction(shard, {}, {key: codec.encode(wanted.number, Address(shard, key)) for key in keys})]
        )
        return True, present

    with swapped(enlisting, real, enlist):
        yield


@transaction_bug
def late_append_after_the_marker() -> Iterator[None]:
    """A partition without records of the transaction is left alone: one that is under way lands there afterwards."""
    real = log_ending.decide_end

    def decide_end(head: Head, state: ProducerState | None, *rest: Any) -> LogEnd | None:
        return None if state is None or state.open is None else real(head, state, *rest)

    with swapped(log_ending, real, decide_end):
        yield


@transaction_bug
def aborted_range_dropped_too_early() -> Iterator[None]:
    """What was aborted is forgotten when the frontier passes its first record, not when it passes its marker."""
    real = Tail.trim

    def trim(self: Tail, frontier: int) -> None:
        real(self, frontier)
        self.aborted[:] = [each for each in self.aborted if each.first_offset >= frontier]

    with swapped(Tail, real, trim):
        yield


@transaction_bug
def epoch_not_bumped() -> Iterator[None]:
    """What is aborted because it took too long fences nobody: its producer goes on, in another transaction."""

    def unbumped(state: TransactionState, now_ms: int) -> TransactionState:
        aborted = aborted_by_others(state, now_ms)
        assert aborted.end is not None
        end = msgspec.structs.replace(aborted.end, next_epoch=None)
        return msgspec.structs.replace(aborted, epoch=state.epoch, last_epoch=state.last_epoch, end=end)

    with swapped(coordinator, aborted_by_others, unbumped):
        yield


@transaction_bug
def stable_past_an_open_transaction() -> Iterator[None]:
    """Readers of what is committed are told that all of the log is."""
    with swapped(tails, tails.last_stable_offset, lambda head: head.next_offset):
        yield


@transaction_bug
def rows_of_an_open_transaction() -> Iterator[None]:
    """The table takes what nobody has committed."""
    planted = lambda head: head.next_offset  # noqa: E731
    with swapped(stable, stable.stable_end, planted), swapped(fresh, fresh.stable_end, planted):
        yield


@transaction_bug
def torn_commit_of_offsets() -> Iterator[None]:
    """What a transaction has pending in a group becomes its offsets one by one."""
    real = ending.end_in_group

    async def one_by_one(store: Store, group: str, producer_id: int, number: int, *, committed: bool) -> None:
        shard, prefix = group_shard(group), f"{PENDING[0]}{producer_id:016x}/{number:016x}/"
        [claim] = await store.get([Address(shard, CLAIM)])
        rows = await store.range(shard, prefix, prefix[:-1] + "0")
        if claim is not None and committed and len(rows) > 1:
            # The others are turned below, as they should all be.
            await store.transact(
                [Transaction(shard, {CLAIM: claim.version}, {CLAIM: claim.value}, [row.key for row in rows[1:]])]
            )
        await real(store, group, producer_id, number, committed=committed)

    with swapped(ending, real, one_by_one):
        yield


@transaction_bug
def transaction_split_by_a_snapshot() -> Iterator[None]:
    """Each partition goes as far as it can, whatever that tears apart."""

    def farthest(
        starts: Mapping[int, int],
        caps: Mapping[int, int],
        transactions: Sequence[CommittedTransaction],
        free: AbstractSet[int] = frozenset(),
    ) -> dict[int, int]:
        return {index: max(cap, starts.get(index, 0)) for index, cap in caps.items()}

    real_split = stable.split
    with swapped(stable, stable.greatest, farthest), swapped(stable, real_split, lambda *_: []):
        yield


@transaction_bug
def marker_to_come_not_waited_for() -> Iterator[None]:
    """A transaction counts as whole when the markers that are there say so."""
    real = stable.committed

    def seen_only(tails: Mapping[int, Iterable[EndedPart]], gone: AbstractSet[int] = frozenset()) -> Any:
        return [replace(each, unseen=frozenset()) for each in real(tails, gone)]

    with swapped(stable, real, seen_only), swapped(stable, stable.split, lambda *_: []):
        yield
