"""Transactions in a partition's log: who may append, how each ends, where the last stable offset is."""

import struct
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.worlds.enlisting import ListedTransactions

from lakestream.errors import StorageError
from lakestream.metadata import codec
from lakestream.metadata.log.commit import AWAITED, DUPLICATE, FENCED, TRANSACTION_OPEN, Batch, Offer
from lakestream.metadata.log.committer import Committed, Committer, Gone, Verdict
from lakestream.metadata.log.ending import Ended, decide_end, end_in_logs, open_transactions
from lakestream.metadata.log.enlistment import (
    CONCURRENT,
    NOT_ENLISTED,
    NOT_VERIFIED,
    InTransaction,
)
from lakestream.metadata.log.head import (
    MARKER_EXTENT,
    Accepted,
    Head,
    OpenHere,
    ProducerState,
    last_stable_offset,
    producer_key,
    shard_of,
)
from lakestream.metadata.log.partition import create_head, delete_log, read_extents, read_head
from lakestream.metadata.log.transactions import AbortedRange, Ending, aborted_ranges, markers_in
from lakestream.metadata.store import Address, Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.model import StreamPartition
from lakestream.records import walk
from lakestream.runtime import system

P0, P1, P2 = (StreamPartition(UUID(int=1), index) for index in range(3))
OTHER = StreamPartition(UUID(int=2), 0)
IMPLICIT = InTransaction("t", implicit=True)


class World:
    """One broker, which commits one batch after the other."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore(system())
        self.coordinator = ListedTransactions()
        self.committer = Committer(self.store, enlistment=self.coordinator)
        self._flush = 0

    async def create(self, *partitions: StreamPartition) -> None:
        for partition in partitions:
            await create_head(self.store, partition)

    async def append(
        self,
        sequence: int,
        *,
        producer: int = 7,
        epoch: int = 0,
        transaction: InTransaction | None = IMPLICIT,
        partition: StreamPartition = P0,
        count: int = 1,
    ) -> Accepted:
        [result] = await self.commit([batch(sequence, producer, epoch, transaction, count)], partition)
        return result

    async def commit(self, batches: Sequence[Batch], partition: StreamPartition = P0) -> tuple[Accepted, ...]:
        self._flush += 1
        offer = Offer(partition, "s", self._flush, 1, ("main",), f"s-{self._flush}", 0, batches, lambda start, end: 0)
        verdicts: dict[StreamPartition, Verdict] = {}
        await self.committer.commit([offer], verdicts)
        verdict = verdicts[partition]
        assert isinstance(verdict, Committed)
        return verdict.results

    async def head(self, partition: StreamPartition = P0) -> Head:
        known = await read_head(self.store, partition)
        assert known is not None
        return known.head

    async def state(self, producer: int = 7, partition: StreamPartition = P0) -> ProducerState:
        address = Address(shard_of(partition), producer_key(producer))
        [row] = await self.store.get([address])
        assert row is not None
        return codec.decode(row.value, ProducerState, address)


def batch(
    sequence: int, producer: int = 7, epoch: int = 0, transaction: InTransaction | None = IMPLICIT, count: int = 1
) -> Batch:
    return Batch(0, 100, count, 5, producer, epoch, sequence, transaction)


def ending(number: int = 0, *, committed: bool = True, epoch: int = 0, next_epoch: int | None = 1) -> Ending:
    return Ending("t", number, 7, epoch, committed, next_epoch, coordinator_epoch=3, time_ms=99)


@pytest.fixture
async def world() -> World:
    made = World()
    await made.create(P0, P1, P2, OTHER)
    return made


async def test_the_first_batch_enlists_and_opens_and_the_others_do_not_ask_again(world: World) -> None:
    assert (await world.append(0, count=2)).base_offset == 0
    assert (await world.append(2)).base_offset == 2
    assert world.coordinator.asked == [("t", 7, 0, (P0,), True)]
    head = await world.head()
    assert (head.first_open, last_stable_offset(head), head.next_offset) == (0, 0, 3)
    [opened] = await open_transactions(world.store, P0)
    assert (opened.transactional_id, opened.number, opened.producer_id, opened.first_offset) == ("t", 0, 7, 0)


async def test_the_end_leaves_a_marker_and_moves_the_stable_offset(world: World) -> None:
    await world.append(-1, producer=-1, transaction=None)
    await world.append(0, count=2)
    assert await end_in_logs(world.store, ending(committed=False), [P0, P1, OTHER]) == {
        P0: Ended(3),
        P1: Ended(0),
        OTHER: Ended(0),
    }
    head = await world.head()
    assert (head.first_open, last_stable_offset(head), head.next_offset) == (None, 4, 4)
    extents = await read_extents(world.store, P0)
    [(offset, marker)] = markers_in(extents)
    assert (offset, marker.first_offset, marker.end_offset, marker.committed) == (3, 1, 3, False)
    assert marker.partitions == (0, 1)
    assert aborted_ranges(extents) == [AbortedRange(7, 1, 3)]
    [(_, nothing)] = markers_in(await read_extents(world.store, OTHER))
    assert (nothing.first_offset, nothing.end_offset, nothing.partitions) == (None, None, (0,))
    assert await open_transactions(world.store, P0) == []


async def test_a_marker_is_the_control_batch_that_kafka_writes(world: World) -> None:
    for partition, committed, kind in ((P0, True, 1), (P1, False, 0)):
        await end_in_logs(world.store, ending(committed=committed), [partition])
        [extent] = await read_extents(world.store, partition)
        assert (extent.kind, extent.stores, extent.object_key) == (MARKER_EXTENT, (), "")
        [info] = walk(extent.inline)
        assert (info.attributes, info.producer_id, info.producer_epoch, info.base_sequence) == (0x30, 7, 1, -1)
        assert (info.record_count, info.base_timestamp_ms, info.max_timestamp_ms) == (1, 99, 99)
        record = extent.inline[61:]
        assert record[5:9] == struct.pack(">hh", 0, kind)
        assert record[10:16] == struct.pack(">hi", 0, 3)


async def test_to_end_twice_is_to_end_once(world: World) -> None:
    await world.append(0)
    for next_epoch in (1, None):
        number = 0 if next_epoch else 1
        world.coordinator.open["t"] = number
        if number:
            await world.append(0, epoch=1)
        end = ending(number, epoch=number, next_epoch=next_epoch)
        assert await end_in_logs(world.store, end, [P0, P1]) != {P0: Ended(None), P1: Ended(None)}
        before = await world.head()
        assert await end_in_logs(world.store, end, [P0, P1]) == {P0: Ended(None), P1: Ended(None)}
        assert await world.head() == before


async def test_a_late_append_in_the_old_epoch_is_fenced_and_the_new_one_begins_with_sequence_0(world: World) -> None:
    await world.append(0)
    await end_in_logs(world.store, ending(), [P0, P1])
    for partition in (P0, P1):
        assert (await world.append(1, partition=partition)).refusal == FENCED
        assert (await world.append(5, epoch=1, partition=partition)).refusal == AWAITED
        world.coordinator.open["t"] = 1
        assert (await world.append(0, epoch=1, partition=partition)).base_offset >= 0
        assert (await world.state(partition=partition)).ended == 0


async def test_without_a_new_epoch_a_late_append_has_to_be_in_a_transaction_and_sequences_go_on(world: World) -> None:
    explicit = InTransaction("t", implicit=False)
    await world.append(0, transaction=explicit)
    await end_in_logs(world.store, ending(next_epoch=None), [P0])
    world.coordinator.open["t"] = None
    assert (await world.append(1, transaction=explicit)).refusal == NOT_ENLISTED
    assert (await world.append(0, transaction=explicit)) == Accepted(0, DUPLICATE)
    world.coordinator.open["t"] = 0
    assert (await world.append(1, transaction=explicit)).refusal == NOT_ENLISTED
    world.coordinator.open["t"] = 1
    assert (await world.append(1, transaction=explicit)).base_offset == 2


async def test_an_append_that_asked_before_the_end_does_not_land_after_it(world: World) -> None:
    """The end comes between the coordinator's answer and the commit, in a partition with nothing of the transaction."""

    class Between(MemoryStore):
        armed = True

        async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
            if self.armed and any("o/" in key for each in transactions for key in each.puts):
                self.armed = False
                await end_in_logs(self, ending(next_epoch=None), [P0])
                world.coordinator.open["t"] = None
            return await super().transact(transactions)

    world = World(Between(system()))
    await world.create(P0)
    assert (await world.append(0)).refusal == NOT_ENLISTED
    assert len(world.coordinator.asked) == 2
    head = await world.head()
    assert (head.first_open, head.next_offset) == (None, 1)


async def test_outside_of_its_transaction_a_producer_may_not_write(world: World) -> None:
    await world.append(0)
    assert (await world.append(1, transaction=None)).refusal == TRANSACTION_OPEN
    assert (await world.append(0, transaction=None)) == Accepted(0, DUPLICATE)
    await end_in_logs(world.store, ending(), [P0])
    assert (await world.append(0, epoch=1, transaction=None)).base_offset == 2


async def test_a_coordinator_that_does_not_answer_holds_up_nobody_else(world: World) -> None:
    world.coordinator.silent = True
    results = await world.commit([batch(-1, -1, -1, None), batch(0), batch(1), batch(0, 8, 0, None)])
    assert [each.refusal for each in results] == ["", NOT_VERIFIED, AWAITED, ""]
    world.coordinator.silent = False
    assert (await world.append(0)).base_offset == 2


async def test_nobody_asks_for_records_outside_of_transactions(world: World) -> None:
    await world.append(0, transaction=None)
    assert world.coordinator.asked == []
    assert (await Committer(world.store)._ask(IMPLICIT, (7, 0), [P0])) == {}


async def test_the_first_open_transaction_is_always_the_first(world: World) -> None:
    world.coordinator.open |= {f"t{n}": 0 for n in (1, 2, 3)}
    for producer in (1, 2, 3):
        await world.append(0, producer=producer, transaction=InTransaction(f"t{producer}", implicit=True))
    ends = {n: Ending(f"t{n}", 0, n, 0, True, None, 0, 5) for n in (1, 2, 3)}
    await end_in_logs(world.store, ends[2], [P0])
    assert (await world.head()).first_open == 0
    await end_in_logs(world.store, ends[1], [P0])
    assert (await world.head()).first_open == 2
    await end_in_logs(world.store, ends[3], [P0])
    assert (await world.head()).first_open is None


async def test_a_partition_that_is_gone_counts_as_done(world: World) -> None:
    await world.append(0)
    await delete_log(world.store, P0)
    assert await end_in_logs(world.store, ending(), [P0, P1]) == {P0: Gone(), P1: Ended(0)}


async def test_a_damaged_partition_does_not_hold_up_the_others(world: World) -> None:
    await world.store.transact([Transaction(shard_of(P1), {}, {"head": b"damaged"})])
    with pytest.raises(StorageError, match="head"):
        await end_in_logs(world.store, ending(), [P0, P1, P2])
    for partition in (P0, P2):
        assert (await world.head(partition)).next_offset == 1


async def test_a_marker_ends_its_own_transaction_only() -> None:
    newer = ProducerState(0, (), 0, 5, open=OpenHere(4, 0), ended=3)
    assert decide_end(Head(next_offset=1, first_open=0), newer, None, ending(3), (0,)) is None
    with pytest.raises(StorageError, match="transaction 4 open"):
        decide_end(Head(next_offset=1, first_open=0), newer, None, ending(5), (0,))


async def test_a_producer_of_a_newer_epoch_waits_for_the_end_of_the_transaction_before(world: World) -> None:
    await world.append(0)
    world.coordinator.open["t"] = 1
    assert (await world.append(0, epoch=1)).refusal == CONCURRENT


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["append", "plain", "commit", "abort"])), max_size=40))
async def test_whatever_happens_heads_rows_and_markers_agree(steps: list[tuple[int, str]]) -> None:
    world = World()
    await world.create(P0)
    numbers = dict.fromkeys(range(3), 0)
    sequences = dict.fromkeys(range(3), 0)
    opens: dict[int, int] = {}
    expected: list[AbortedRange] = []
    for producer, step in steps:
        name, number = f"t{producer}", numbers[producer]
        world.coordinator.open[name] = number
        if step in ("append", "plain"):
            transaction = InTransaction(name, implicit=True) if step == "append" else None
            result = await world.append(
                sequences[producer], producer=producer, epoch=number, transaction=transaction, count=2
            )
            if step == "plain" and producer in opens:
                assert result.refusal == TRANSACTION_OPEN
                continue
            assert result.base_offset >= 0
            sequences[producer] += 2
            if step == "append":
                opens.setdefault(producer, result.base_offset)
        else:
            end = Ending(name, number, producer, number, step == "commit", number + 1, 0, 5)
            ended = (await end_in_logs(world.store, end, [P0]))[P0]
            assert isinstance(ended, Ended)
            assert ended.marker_offset is not None
            first = opens.pop(producer, None)
            if first is not None and step == "abort":
                expected.append(AbortedRange(producer, first, ended.marker_offset))
            numbers[producer] += 1
            sequences[producer] = 0
        head = await world.head()
        assert head.first_open == min(opens.values(), default=None)
        rows = await open_transactions(world.store, P0)
        assert {row.producer_id: row.first_offset for row in rows} == opens
        for each, first in opens.items():
            assert (await world.state(each)).open == OpenHere(numbers[each], first)
    extents = await read_extents(world.store, P0)
    assert aborted_ranges(extents) == expected
    assert not extents or extents[-1].end_offset == (await world.head()).next_offset
