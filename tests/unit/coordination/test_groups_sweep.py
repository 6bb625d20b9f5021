"""What lapses of consumer groups: offsets by age, those of dead topics, names that nobody uses. Metadata holds what
lives."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

import pytest
from simulator.loop import SimulatedLoop
from support.clients.wire import until
from support.groups.coordinators import QUICK, CoordinatorWorld, joining, member, offset, rows_of, with_world

from lakestream.coordination.groups import GroupCoordinator, GroupError, Joined, Sync
from lakestream.coordination.settings import GroupSettings
from lakestream.errors import NotCoordinator
from lakestream.metadata.groups import CommittedOffset, GroupRows, GroupState, committed_offsets, lease_address
from lakestream.model import StreamPartition

RETENTION_MS = GroupSettings().offsets_retention_ms
IDLE = GroupSettings(initial_rebalance_delay_ms=5, min_session_timeout_ms=20, lease_ttl_ms=30, idle_release_ms=20)

_REBALANCE_S: Final = joining().rebalance_timeout_ms / 1000
_LONGER_THAN_A_REBALANCE_S: Final = 1.5 * _REBALANCE_S


async def _topic(world: CoordinatorWorld, name: str = "t") -> StreamPartition:
    return (await world.topics.create(name, 1, {})).each_partition()[0]


def _at(world: CoordinatorWorld, partition: StreamPartition, number: int = 7) -> dict[StreamPartition, CommittedOffset]:
    return {partition: CommittedOffset(number, 0, "", world.clock.ms)}


async def _sweep(coordinator: GroupCoordinator) -> None:
    while not await coordinator.sweeper.sweep():
        pass


def test_the_default_is_kafkas() -> None:
    assert RETENTION_MS == 10_080 * 60_000


def test_offsets_without_members_lapse_by_their_commit() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            old, new = await _topic(world), await _topic(world, "u")
            await first.commit("g", "", None, -1, _at(world, old))
            world.clock.ms += RETENTION_MS - 1
            await _sweep(first)
            await first.commit("g", "", None, -1, _at(world, new))
            assert set(await committed_offsets(world.store, "g")) == {old, new}
            world.clock.ms += 1
            await _sweep(first)
            assert set(await committed_offsets(world.store, "g")) == {new}
            world.clock.ms += RETENTION_MS
            await _sweep(first)
            assert await rows_of(world.store) == []

    with_world(test)


def test_offsets_stay_while_a_group_has_members_and_the_retention_time_after_the_last_left() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            partition = await _topic(world)
            joined = await member(first)
            await first.commit("g", joined.member_id, None, joined.generation, _at(world, partition))
            world.clock.ms += 3 * RETENTION_MS
            await _sweep(first)
            assert await committed_offsets(world.store, "g")
            await first.leave("g", [(joined.member_id, None)])
            world.clock.ms += RETENTION_MS - 1
            await _sweep(first)
            assert await committed_offsets(world.store, "g")
            world.clock.ms += 1
            await _sweep(first)
            assert await rows_of(world.store) == []
            assert await first.describe("g") is None

    with_world(test)


def test_offsets_of_a_dead_topic_go_at_once_from_a_living_group_too() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            dead, living = await _topic(world), await _topic(world, "u")
            joined = await member(first)
            await first.commit("g", joined.member_id, None, joined.generation, _at(world, dead) | _at(world, living))
            await world.topics.delete(dead.topic_id)
            await _topic(world)
            await _sweep(first)
            assert set(await committed_offsets(world.store, "g")) == {living}
            again = await first.commit("g", joined.member_id, None, joined.generation, _at(world, living, 8))
            assert again is GroupError.NONE

    with_world(test)


def test_a_group_whose_coordinator_and_members_died_together_lapses_too() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            partition = await _topic(world)
            joined = await member(first, session_timeout_ms=50)
            await first.commit("g", joined.member_id, None, joined.generation, _at(world, partition))
            world.clock.ms += QUICK.lease_ttl_ms + 1
            for sweeper in (first, second):
                await _sweep(sweeper)
            holder = next(each for each in (second, first) if each.groups())
            await until(lambda: not any(held.machine.members for held in holder.groups()))
            world.clock.ms += RETENTION_MS
            for sweeper in (first, second):
                await _sweep(sweeper)
            assert await rows_of(world.store) == []

    with_world(test)


def test_names_that_were_only_asked_for_leave_nothing() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            for number in range(50):
                name = f"g{number}"
                assert await first.describe(name) is None
                assert await first.offsets(name) == {}
                assert await first.delete(name) is GroupError.UNKNOWN_GROUP
                assert await first.heartbeat(name, "m", None, 1) is GroupError.UNKNOWN_MEMBER
                assert await first.leave(name, [("m", None)]) == [GroupError.UNKNOWN_MEMBER]
            assert await rows_of(world.store) == []

    with_world(test)


def test_a_group_that_came_to_nothing_leaves_nothing_when_it_is_idle() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1, IDLE) as first:
            joined = await first.join("g", joining(id_required=True, session_timeout_ms=30))
            assert joined.error is GroupError.MEMBER_ID_REQUIRED
            assert await first.commit("h", "nobody", None, 1, offset(1)) is GroupError.UNKNOWN_MEMBER
            assert await rows_of(world.store)
            await until(lambda: not first.groups())
            await asyncio.sleep(0.05)
            assert await rows_of(world.store) == []

    with_world(test)


def test_what_a_dead_coordinator_left_of_an_unused_name_is_removed() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            lease = await world.store.acquire_lease(lease_address("g"), "dead", ttl_ms=100)
            await GroupRows(world.store, "g", lease.token).load()
            await _sweep(first)
            assert await rows_of(world.store), "its lease still holds"
            world.clock.ms += 101
            await _sweep(first)
            assert await rows_of(world.store) == []

    with_world(test)


def test_nothing_under_way_lands_after_claim_and_lease_are_gone() -> None:
    """Tokens are versions, which only grow: neither the old holder nor a late copy of its writes meets one again."""

    async def test(world: CoordinatorWorld) -> None:
        lease = await world.store.acquire_lease(lease_address("g"), "old", ttl_ms=100)
        old = GroupRows(world.store, "g", lease.token)
        await old.load()
        late = list(world.store.applied)
        world.clock.ms += 101
        async with world.broker(1) as first:
            await _sweep(first)
            assert await rows_of(world.store) == []
            for write in (old.commit(offset(3)), old.save(GroupState(1)), old.delete()):
                with pytest.raises(NotCoordinator):
                    await write
            await world.store.transact(late)
            assert await rows_of(world.store) == []
            await first.commit("g", "", None, -1, offset(5))
            await world.store.transact(late)
            with pytest.raises(NotCoordinator):
                await old.commit(offset(3))
            assert [each.offset for each in (await committed_offsets(world.store, "g")).values()] == [5]

    with_world(test)


def test_a_sweep_that_waits_for_the_store_costs_nobody_the_time_to_rejoin() -> None:
    """A member hears of the rebalance only after the sweep has let go of the group, when its time would be over."""

    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            one = await _member_with_a_dead_offset(world, first)
            two = asyncio.ensure_future(first.join("g", joining()))
            async with _slow_sweep(world, first):
                beat = asyncio.ensure_future(first.heartbeat("g", one.member_id, None, one.generation))
                await asyncio.sleep(_LONGER_THAN_A_REBALANCE_S)
                assert not beat.done()
            assert await beat is GroupError.REBALANCING
            again = await first.join("g", joining(one.member_id))
            assert (again.error, again.generation) == (GroupError.NONE, one.generation + 1)
            assert (await two).generation == again.generation

    _with_made_up_time(test)


def test_a_sweep_that_waits_for_the_store_costs_nobody_the_time_to_sync() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            one = await _member_with_a_dead_offset(world, first)
            joined = await first.join("g", joining(one.member_id))
            assert joined.generation == one.generation + 1
            async with _slow_sweep(world, first):
                again = asyncio.ensure_future(first.join("g", joining(one.member_id)))
                await asyncio.sleep(_LONGER_THAN_A_REBALANCE_S)
                assert not again.done()
            assert (await again).generation == joined.generation
            sync = Sync(one.member_id, None, joined.generation, None, None, {one.member_id: b"all"})
            assert (await first.sync("g", sync)).error is GroupError.NONE

    _with_made_up_time(test)


def test_a_sweep_that_fails_costs_nobody_the_time_to_rejoin() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            one = await _member_with_a_dead_offset(world, first)
            two = asyncio.ensure_future(first.join("g", joining()))
            async with _slow_sweep(world, first):
                await asyncio.sleep(_LONGER_THAN_A_REBALANCE_S)
                world.store.fail_before = 1
            assert not world.store.fail_before, "the sweep has failed"
            again = await first.join("g", joining(one.member_id))
            assert (again.error, again.generation) == (GroupError.NONE, one.generation + 1)
            await two

    _with_made_up_time(test)


def test_who_says_nothing_is_dropped_after_a_slow_sweep_too() -> None:
    """The sweep's time is given back once, not for ever."""

    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            one = await _member_with_a_dead_offset(world, first)
            two = asyncio.ensure_future(first.join("g", joining()))
            async with _slow_sweep(world, first):
                await asyncio.sleep(_LONGER_THAN_A_REBALANCE_S)
            before_s = asyncio.get_running_loop().time()
            assert (await two).generation == one.generation + 1
            assert asyncio.get_running_loop().time() - before_s == pytest.approx(_REBALANCE_S, abs=0.1)
            gone = await first.heartbeat("g", one.member_id, None, one.generation)
            assert gone is GroupError.UNKNOWN_MEMBER

    _with_made_up_time(test)


async def _member_with_a_dead_offset(world: CoordinatorWorld, coordinator: GroupCoordinator) -> Joined:
    """At rest, with something for a sweep to do."""
    dead = await _topic(world)
    joined = await member(coordinator)
    await coordinator.commit("g", joined.member_id, None, joined.generation, _at(world, dead))
    await world.topics.delete(dead.topic_id)
    return joined


@asynccontextmanager
async def _slow_sweep(world: CoordinatorWorld, coordinator: GroupCoordinator) -> AsyncIterator[None]:
    """Inside, a sweep has the group and the store does not answer; afterwards the sweep is over."""
    gate = world.store.gate = asyncio.Event()
    sweeping = asyncio.ensure_future(coordinator.sweeper.sweep())
    await asyncio.sleep(0.001)
    yield
    assert not sweeping.done()
    gate.set()
    await sweeping
    world.store.gate = None


def _with_made_up_time(test: Callable[[CoordinatorWorld], Awaitable[None]]) -> None:
    async def work() -> None:
        await test(CoordinatorWorld())

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(work())


def test_metadata_holds_what_lives() -> None:
    """Fill, wait, count: many groups of every kind; in the end only the living one is left."""

    async def test(world: CoordinatorWorld) -> None:
        small = GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=20, max_swept_groups=7)
        async with world.broker(1, small) as first, world.broker(2, small) as second:
            partition = await _topic(world)
            for number in range(40):
                await first.commit(f"simple{number}", "", None, -1, _at(world, partition))
            for number in range(10):
                joined = await member(first, f"left{number}")
                await first.commit(f"left{number}", joined.member_id, None, 1, _at(world, partition))
                await first.leave(f"left{number}", [(joined.member_id, None)])
            alive = await member(first, "alive", session_timeout_ms=60_000)
            await first.commit("alive", alive.member_id, None, 1, _at(world, partition))
            await first.commit("dead-topic", "", None, -1, _at(world, StreamPartition(uuid4(), 0)))
            assert len(await rows_of(world.store)) > 150
            world.clock.ms += RETENTION_MS
            for _ in range(20):
                await asyncio.gather(first.sweeper.sweep(), second.sweeper.sweep())
            assert {shard for shard, _ in await rows_of(world.store)} == {"group/alive"}
            assert len(await rows_of(world.store)) == 5, "lease, claim, state, a member, an offset"

    with_world(test)
