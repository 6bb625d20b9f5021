"""Committing flushes on a store that loses races and replies."""

import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from lakestream.errors import StorageError, Unavailable
from lakestream.metadata.log.commit import Batch, Offer
from lakestream.metadata.log.committer import Committed, Committer, Gone, SessionLost, UploadAgain, Verdict
from lakestream.metadata.log.partition import (
    advance_frontier,
    create_head,
    delete_log,
    raise_fence,
    read_extents,
    read_head,
)
from lakestream.metadata.store import Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.model import StreamPartition
from lakestream.runtime import Runtime


class Frozen:
    def now_ms(self) -> int:
        return 0


class Unlucky(MemoryStore):
    """Loses the reply of the next `lost` transactions after applying them, or drops them altogether."""

    lost = 0
    dropped = 0

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        if self.dropped:
            self.dropped -= 1
            raise Unavailable("dropped")
        outcomes = await super().transact(transactions)
        if self.lost:
            self.lost -= 1
            raise Unavailable("lost")
        return outcomes


P0, P1 = (StreamPartition(UUID(int=1), index) for index in range(2))


def make_store() -> Unlucky:
    return Unlucky(Runtime(Frozen(), random.Random(1)))


def offer(partition: StreamPartition, flush: int, *, count: int = 10, session: str = "s", generation: int = 1) -> Offer:
    batch = Batch(0, 100, count, 5, -1, -1, -1)
    key = f"{session}-{flush}"
    return Offer(partition, session, flush, generation, ("main",), key, 0, [batch], lambda start, end: 0)


async def ready(store: Unlucky) -> None:
    await create_head(store, P0)
    await create_head(store, P1)


async def commit(committer: Committer, *offers: Offer) -> dict[StreamPartition, Verdict]:
    verdicts: dict[StreamPartition, Verdict] = {}
    await committer.commit(offers, verdicts)
    return verdicts


def bases(verdicts: dict[StreamPartition, Verdict]) -> list[int]:
    return [verdict.results[0].base_offset for verdict in verdicts.values() if isinstance(verdict, Committed)]


async def test_two_brokers_share_a_partition_without_sharing_an_offset() -> None:
    store = make_store()
    await ready(store)
    one, two = Committer(store), Committer(store)
    seen = []
    for flush in range(5):
        verdicts = await commit(one, offer(P0, flush, session="one"), offer(P1, flush, session="one"))
        seen += bases({P0: verdicts[P0]})
        seen += bases(await commit(two, offer(P0, flush, session="two")))
    assert seen == list(range(0, 100, 10))
    extents = await read_extents(store, P0)
    assert [extent.base_offset for extent in extents] == seen
    assert [extent.base_offset for extent in await read_extents(store, P0, 39)] == list(range(30, 100, 10))
    assert [extent.base_offset for extent in await read_extents(store, P0, 40)] == list(range(40, 100, 10))


@pytest.mark.parametrize("applied", [True, False])
async def test_an_unknown_outcome_is_learned_from_the_mark(applied: bool) -> None:
    store = make_store()
    await ready(store)
    committer = Committer(store)
    await commit(committer, offer(P0, 1))
    store.lost, store.dropped = (1, 0) if applied else (0, 1)
    verdicts: dict[StreamPartition, Verdict] = {}
    with pytest.raises(Unavailable):
        await committer.commit([offer(P0, 2)], verdicts)
    if applied:
        await advance_frontier(store, P0, 20)
        assert await read_extents(store, P0) == []
    await committer.resume([offer(P0, 2)], verdicts)
    assert bases(verdicts) == [10]
    head = await read_head(store, P0)
    assert head is not None
    assert head.head.next_offset == 20


async def test_below_the_fence_an_unknown_outcome_stays_unknown_and_a_first_attempt_uploads_again() -> None:
    store = make_store()
    await ready(store)
    committer = Committer(store)
    store.lost = 1
    verdicts: dict[StreamPartition, Verdict] = {}
    with pytest.raises(Unavailable):
        await committer.commit([offer(P0, 1)], verdicts)
    await raise_fence(store, P0, 2)
    await committer.resume([offer(P0, 1)], verdicts)
    assert verdicts == {P0: SessionLost()}
    assert await commit(committer, offer(P0, 2)) == {P0: UploadAgain()}
    assert bases(await commit(committer, offer(P0, 3, generation=2))) == [10]


async def test_a_mark_survives_a_fence_that_is_not_above_it() -> None:
    store = make_store()
    await ready(store)
    await commit(Committer(store), offer(P0, 1, generation=3))
    await raise_fence(store, P0, 3)
    head = await read_head(store, P0)
    assert head is not None
    assert "s" in head.head.sessions
    fenced = await raise_fence(store, P0, 4)
    assert fenced is not None
    assert fenced.sessions == {}
    assert await raise_fence(store, P0, 2) == fenced


async def test_a_deleted_partition_takes_nothing_and_the_others_go_on() -> None:
    store = make_store()
    await ready(store)
    committer = Committer(store)
    await commit(committer, offer(P0, 1), offer(P1, 1))
    await delete_log(store, P0)
    verdicts = await commit(committer, offer(P0, 2), offer(P1, 2))
    assert verdicts[P0] == Gone()
    assert bases(verdicts) == [10]
    assert await read_extents(store, P0) == []
    assert await raise_fence(store, P0, 9) is None


async def test_the_frontier_only_moves_forward_and_drops_exactly_what_it_passed() -> None:
    store = make_store()
    await ready(store)
    committer = Committer(store)
    for flush in range(4):
        await commit(committer, offer(P0, flush))
    await advance_frontier(store, P0, 20)
    assert [extent.base_offset for extent in await read_extents(store, P0)] == [20, 30]
    assert (await advance_frontier(store, P0, 10)).frontier == 20
    with pytest.raises(StorageError):
        await advance_frontier(store, P0, 41)
    await advance_frontier(store, P0, 40)
    assert await read_extents(store, P0) == []
    assert bases(await commit(committer, offer(P0, 9))) == [40]
