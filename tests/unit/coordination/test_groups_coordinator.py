"""Coordinators under leases: one per group, generations and offsets that survive, nothing written after a takeover."""

import asyncio

import pytest
from support.clients.wire import until
from support.groups.coordinators import PARTITION, QUICK, CoordinatorWorld, joining, member, offset, with_world

from lakestream.coordination.groups import GroupError
from lakestream.coordination.settings import GroupSettings
from lakestream.errors import NotCoordinator, Unavailable
from lakestream.metadata.groups import committed_offsets, lease_holder


def test_one_broker_coordinates_and_the_others_say_so() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            await member(first)
            with pytest.raises(NotCoordinator):
                await second.join("g", joining())
            with pytest.raises(NotCoordinator):
                await second.offsets("g")
            assert (await first.find("g")).broker_id == (await second.find("g")).broker_id == 1

    with_world(test)


def test_without_a_lease_everyone_names_the_same_broker() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            names = [f"g{number}" for number in range(20)]
            chosen = [(await first.find(name)).broker_id for name in names]
            assert chosen == [(await second.find(name)).broker_id for name in names]
            assert set(chosen) == {1, 2}

    with_world(test)


def test_the_next_coordinator_goes_on_from_the_generation_and_the_offsets() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            joined = await member(first)
            assert joined.generation == 1
            assert await first.commit("g", joined.member_id, None, 1, offset(42)) is GroupError.NONE
        async with world.broker(2) as second:
            assert (await second.offsets("g"))[PARTITION].offset == 42
            assert await second.heartbeat("g", joined.member_id, None, 1) is GroupError.NONE
            await second.leave("g", [(joined.member_id, None)])
            assert (await member(second)).generation > joined.generation

    with_world(test)


def test_stopping_gives_the_leases_back_and_answers_who_waits() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            joined = await member(first, session_timeout_ms=500)
            waiting = asyncio.ensure_future(first.join("g", joining(session_timeout_ms=500)))
            await until(lambda: len(first.groups()[0].machine.members) == 2)
            await first.stop()
            assert (await waiting).error is GroupError.NOT_COORDINATOR
            assert await lease_holder(world.store, "g") is None
            assert (await member(second)).generation > joined.generation
            with pytest.raises(NotCoordinator):
                await first.join("g", joining())

    with_world(test)


def test_a_coordinator_that_lost_its_lease_writes_nothing() -> None:
    """It was paused, say: it believes in its lease while another has taken the group over."""

    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            old = await member(first, session_timeout_ms=500)
            waiting = asyncio.ensure_future(first.join("g", joining(session_timeout_ms=500)))
            await until(lambda: len(first.groups()[0].machine.members) == 2)
            world.clock.ms += QUICK.lease_ttl_ms + 1
            new = await member(second)
            assert await second.commit("g", new.member_id, None, new.generation, offset(7)) is GroupError.NONE
            with pytest.raises(NotCoordinator):
                await first.commit("g", old.member_id, None, old.generation, offset(1))
            assert (await waiting).error is GroupError.NOT_COORDINATOR
            assert not first.groups()
            assert (await committed_offsets(world.store, "g"))[PARTITION].offset == 7
            with pytest.raises(NotCoordinator):
                await first.heartbeat("g", old.member_id, None, old.generation)

    with_world(test)


def test_a_lost_lease_is_noticed_without_a_write() -> None:
    async def test(world: CoordinatorWorld) -> None:
        short = GroupSettings(initial_rebalance_delay_ms=5, min_session_timeout_ms=20, lease_ttl_ms=90)
        async with world.broker(1, short) as first, world.broker(2) as second:
            await member(first, session_timeout_ms=500)
            waiting = asyncio.ensure_future(first.join("g", joining(session_timeout_ms=500)))
            await until(lambda: len(first.groups()[0].machine.members) == 2)
            world.clock.ms += 91
            await member(second)
            assert (await waiting).error is GroupError.NOT_COORDINATOR

    with_world(test)


def test_leases_are_renewed_while_a_group_is_in_use_and_given_back_when_it_is_not() -> None:
    async def test(world: CoordinatorWorld) -> None:
        short = GroupSettings(initial_rebalance_delay_ms=5, lease_ttl_ms=60, idle_release_ms=100)
        async with world.broker(1, short) as first:
            joined = await member(first)
            for _ in range(6):
                world.clock.ms += 40
                await asyncio.sleep(0.04)
                assert await first.heartbeat("g", joined.member_id, None, joined.generation) is GroupError.NONE
            await first.leave("g", [(joined.member_id, None)])
            await until(lambda: not first.groups())
            await asyncio.sleep(0.02)
            assert await lease_holder(world.store, "g") is None

    with_world(test)


def test_members_see_a_generation_only_after_it_is_stored() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            world.store.gate = asyncio.Event()
            joining_now = asyncio.ensure_future(first.join("g", joining()))
            await asyncio.sleep(0.05)
            assert not joining_now.done()
            world.store.gate.set()
            assert (await joining_now).generation == 1
            assert any("state" in transaction.puts for transaction in world.store.applied)

    with_world(test)


def test_a_store_that_is_away_delays_the_generation_but_loses_nobody() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            assert await first.commit("g", "nobody", None, 1, {}) is GroupError.UNKNOWN_MEMBER
            world.store.fail_before = 1
            joined = await first.join("g", joining())
            assert (joined.error, joined.generation) == (GroupError.NONE, 1)

    with_world(test)


def test_a_commit_with_unknown_outcome_is_reported_as_such() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            joined = await member(first)
            world.store.fail_before = 1
            with pytest.raises(Unavailable):
                await first.commit("g", joined.member_id, None, joined.generation, offset(1))
            assert await first.commit("g", joined.member_id, None, joined.generation, offset(2)) is GroupError.NONE

    with_world(test)


def test_commits_that_meet_are_written_together_and_in_order() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            joined = await member(first)
            writes = len(world.store.applied)
            world.store.gate = asyncio.Event()
            commits = [
                asyncio.ensure_future(first.commit("g", joined.member_id, None, joined.generation, offset(number)))
                for number in range(50)
            ]
            await asyncio.sleep(0.01)
            world.store.gate.set()
            assert set(await asyncio.gather(*commits)) == {GroupError.NONE}
            assert (await first.offsets("g"))[PARTITION].offset == 49
            assert len(world.store.applied) - writes <= 2

    with_world(test)


def test_a_silent_member_is_expired_by_the_clock() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            quiet = await member(first, session_timeout_ms=40)
            await until(lambda: not first.groups()[0].machine.members)
            assert await first.heartbeat("g", quiet.member_id, None, quiet.generation) is GroupError.UNKNOWN_MEMBER

    with_world(test)


def test_session_timeouts_have_bounds_and_groups_have_names() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            assert (await first.join("g", joining(session_timeout_ms=19))).error is GroupError.INVALID_SESSION_TIMEOUT
            assert (await first.join("", joining())).error is GroupError.INVALID_NAME

    with_world(test)


def test_a_group_that_nobody_used_is_not_there() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            assert await first.describe("nobody") is None
            await first.commit("simple", "", None, -1, offset(3))
            assert await first.describe("simple") is not None

    with_world(test)
