"""After a coordinator's death the next one goes on with the group: nobody joins again who need not."""

import asyncio
from typing import Any

import pytest
from support.clients.wire import until
from support.groups.coordinators import QUICK, CoordinatorWorld, joining, member, offset, rows_of, with_world

from lakestream.coordination.groups import GroupCoordinator, GroupError, Joined, Sync, Synced

SHORT = 300


def _dies(world: CoordinatorWorld) -> None:
    """The first coordinator is never heard of again; by the store's clock its lease is over."""
    world.clock.ms += QUICK.lease_ttl_ms + 1


def _sync(joined: Joined, assignments: dict[str, bytes] | None = None) -> Sync:
    return Sync(joined.member_id, None, joined.generation, None, None, assignments or {})


async def _pair(coordinator: GroupCoordinator, **changes: Any) -> list[Joined]:
    """Two members at rest; the first leads."""
    one = await coordinator.join("g", joining(**changes))
    joins = [
        asyncio.ensure_future(coordinator.join("g", joining(member_id, **changes))) for member_id in ("", one.member_id)
    ]
    two, one = await asyncio.gather(*joins)
    leader, follower = (one, two) if one.leader == one.member_id else (two, one)
    plan = {leader.member_id: b"first", follower.member_id: b"second"}
    synced = await asyncio.gather(coordinator.sync("g", _sync(follower)), coordinator.sync("g", _sync(leader, plan)))
    assert [each.assignment for each in synced] == [b"second", b"first"]
    return [leader, follower]


def test_members_keep_ids_generation_and_assignments() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            leader, follower = await _pair(first)
            _dies(world)
            for each in (leader, follower):
                assert await second.heartbeat("g", each.member_id, None, each.generation) is GroupError.NONE
                assert (
                    await second.commit("g", each.member_id, None, each.generation, offset(each.generation))
                    is GroupError.NONE
                )
            assert (await second.sync("g", _sync(follower))).assignment == b"second"
            again = await second.join("g", joining(follower.member_id))
            assert (again.error, again.generation) == (GroupError.NONE, follower.generation), "nothing has changed"
            described = await second.describe("g")
            assert described is not None
            assert {each.assignment for each in described.members.values()} == {b"first", b"second"}
            assert described.state.value == "Stable"

    with_world(test)


def test_a_living_group_is_not_empty_for_whoever_comes_first() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            await member(first)
            _dies(world)
            [listed] = [each for broker in (second, first) for each in await broker.listed()][:1]
            assert listed.state.value == "Stable"
            assert await second.commit("g", "", None, -1, offset(1)) is GroupError.UNKNOWN_MEMBER
            assert await second.delete("g") is GroupError.NOT_EMPTY

    with_world(test)


def test_members_are_sent_past_a_broker_that_let_the_lease_lapse() -> None:
    """It is still on the list of brokers for a while."""

    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            names = [f"g{number}" for number in range(12)]
            for name in names:
                await member(first, name)
            assert {(await second.find(name)).broker_id for name in names} == {1}
            _dies(world)
            assert {(await second.find(name)).broker_id for name in names} == {2}

    with_world(test)


def test_sessions_begin_anew_and_end() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            await member(first, session_timeout_ms=SHORT)
            _dies(world)
            assert await second.delete("g") is GroupError.NOT_EMPTY
            await asyncio.sleep(SHORT / 2000)
            assert await second.delete("g") is GroupError.NOT_EMPTY
            await until(lambda: not second.groups()[0].machine.members)
            assert await second.delete("g") is GroupError.NONE
            assert await rows_of(world.store) == []

    with_world(test)


def test_a_static_member_comes_back_to_its_place() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            before = await member(first, instance_id="one")
            _dies(world)
            after = await second.join("g", joining(instance_id="one"))
            assert (after.error, after.generation) == (GroupError.NONE, before.generation)
            assert after.member_id != before.member_id
            assert (await second.sync("g", _sync(after))).assignment == b"all"
            fenced = await second.heartbeat("g", before.member_id, "one", before.generation)
            assert fenced is GroupError.FENCED_INSTANCE
        async with world.broker(3) as third:
            assert await third.heartbeat("g", after.member_id, "one", after.generation) is GroupError.NONE

    with_world(test)


def test_a_rebalance_that_waits_for_the_leader_goes_on() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            joined = await first.join("g", joining())
            _dies(world)
            assert await second.heartbeat("g", joined.member_id, None, joined.generation) is GroupError.NONE
            again = await second.join("g", joining(joined.member_id))
            assert (again.generation, again.leader) == (joined.generation, joined.member_id)
            assert (await second.sync("g", _sync(again, {again.member_id: b"all"}))).assignment == b"all"

    with_world(test)


def test_who_has_left_stays_out_and_the_others_share() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            leader, follower = await _pair(first)
            assert await first.leave("g", [(leader.member_id, None)]) == [GroupError.NONE]
            _dies(world)
            told = await second.heartbeat("g", follower.member_id, None, follower.generation)
            assert told is GroupError.REBALANCING
            gone = await second.heartbeat("g", leader.member_id, None, leader.generation)
            assert gone is GroupError.UNKNOWN_MEMBER
            again = await second.join("g", joining(follower.member_id))
            assert (again.generation, again.leader) == (follower.generation + 1, follower.member_id)

    with_world(test)


def test_nothing_is_told_that_is_not_stored() -> None:
    """The leader's assignment is on its way to the store when its coordinator dies."""

    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            joined = await first.join("g", joining())
            world.store.gate = asyncio.Event()
            waiting = asyncio.ensure_future(first.sync("g", _sync(joined, {joined.member_id: b"lost"})))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            _dies(world)
            world.store.gate, gate = None, world.store.gate
            assert (await second.sync("g", _sync(joined, {joined.member_id: b"kept"}))).assignment == b"kept"
            gate.set()
            with pytest.raises(Exception, match="taken by another"):
                await waiting
            assert (await second.sync("g", _sync(joined))).assignment == b"kept"

    with_world(test)


def test_a_store_that_is_away_while_the_group_is_saved_costs_nobody_the_session() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            joined = await first.join("g", joining(session_timeout_ms=SHORT))
            world.store.fail_before = 2
            synced: Synced = await first.sync("g", _sync(joined, {joined.member_id: b"all"}))
            assert synced.assignment == b"all"
            assert await first.heartbeat("g", joined.member_id, None, joined.generation) is GroupError.NONE

    with_world(test)


def test_life_signs_cost_no_write() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first:
            leader, follower = await _pair(first)
            written = len(world.store.applied)
            for _ in range(50):
                for each in (leader, follower):
                    await first.heartbeat("g", each.member_id, None, each.generation)
            await first.join("g", joining(follower.member_id))
            assert len(world.store.applied) == written

    with_world(test)
