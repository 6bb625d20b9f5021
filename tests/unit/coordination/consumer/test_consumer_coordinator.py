"""The coordinator of groups of the newer protocol: what is stored, what is not, and who goes on after its death."""

import asyncio

from support.groups.coordinators import QUICK, CoordinatorWorld, joining, member, offset, rows_of, with_world
from support.groups.newer import beat

from lakestream.coordination.groups import Beaten, ConsumerState, GroupCoordinator, GroupError


async def _joined(coordinator: GroupCoordinator, member_id: str = "m", group: str = "g", **changes: object) -> Beaten:
    beaten = await coordinator.beat(group, beat(member_id, **changes))
    assert beaten.error is GroupError.NONE, beaten
    return beaten


def _dies(world: CoordinatorWorld) -> None:
    world.clock.ms += QUICK.lease_ttl_ms + 1


def test_heartbeats_that_change_nothing_write_nothing() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker() as coordinator:
            topic = await world.topics.create("t", 2, {})
            beaten = await _joined(coordinator)
            assert beaten.assigned == {topic.topic_id: frozenset((0, 1))}
            written = len(world.store.applied)
            for _ in range(20):
                assert (await coordinator.beat("g", beat("m", 1))).epoch == 1
            assert len(world.store.applied) == written

    with_world(test)


def test_nobody_hears_what_is_not_stored() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker() as coordinator:
            await world.topics.create("t", 2, {})
            await _joined(coordinator)
            world.store.fail_before = 2
            second = asyncio.ensure_future(coordinator.beat("g", beat("n")))
            await asyncio.sleep(0.1)
            assert not second.done()
            assert (await asyncio.wait_for(second, 5)).epoch == 2
            assert len(await rows_of(world.store)) == 5, "lease, claim, state, two members"

    with_world(test)


def test_another_coordinator_goes_on_in_the_middle() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            topic = await world.topics.create("t", 4, {})
            await _joined(first, "a")
            await _joined(first, "b", instance_id="i")
            asked = await first.beat("g", beat("a", 1))
            assert asked.assigned is not None
            [kept] = asked.assigned.values()
            assert len(kept) == 2
            _dies(world)
            assert (await second.beat("g", beat("b", 2))).assigned is None, "not before the other has given it up"
            done = await second.beat("g", beat("a", 1, owned={topic.topic_id: kept}))
            assert done.epoch == 2
            got = (await second.beat("g", beat("b", 2))).assigned
            assert got == {topic.topic_id: frozenset(range(4)) - kept}
            described = await second.describe("g")
            assert described is not None
            assert described.state is ConsumerState.STABLE
            assert await second.commit("g", "b", None, 2, offset(3)) is GroupError.NONE
            assert await second.commit("g", "b", None, 1, offset(4)) is GroupError.STALE_EPOCH
            assert await second.fetch_error("g", "b", 1) is GroupError.STALE_EPOCH
            assert await second.fetch_error("g", None, -1) is GroupError.NONE

    with_world(test)


def test_a_name_goes_from_one_protocol_to_the_other_when_nobody_is_in_it() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker() as coordinator:
            await world.topics.create("t", 1, {})
            joined = await member(coordinator)
            await coordinator.leave("g", [(joined.member_id, None)])
            beaten = await _joined(coordinator)
            assert beaten.epoch > joined.generation, "no number is given twice"
            [listed] = await coordinator.listed()
            assert (listed.kind, listed.state.value, listed.protocol_type) == ("consumer", "Stable", "consumer")
            assert await coordinator.delete("g") is GroupError.NOT_EMPTY
            assert (await coordinator.beat("g", beat("m", -1))).error is GroupError.NONE
            assert (await member(coordinator)).generation > beaten.epoch
            [listed] = await coordinator.listed()
            assert listed.kind == "classic"

    with_world(test)


def test_groups_that_are_not_there() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker() as coordinator:
            assert (await coordinator.beat("", beat())).error is GroupError.INVALID_NAME
            assert (await coordinator.beat("g", beat("m", 3))).error is GroupError.UNKNOWN_GROUP
            assert (await coordinator.beat("g", beat("m", -1))).error is GroupError.UNKNOWN_GROUP
            assert await rows_of(world.store) == []
            await member(coordinator, "h", protocol_type="connect")
            assert (await coordinator.beat("h", beat())).error is GroupError.UNKNOWN_GROUP
            assert (await coordinator.join("h", joining(protocol_type="connect"))).error is not GroupError.UNKNOWN_GROUP

    with_world(test)


def test_an_empty_group_is_listed_and_goes_on_request() -> None:
    async def test(world: CoordinatorWorld) -> None:
        async with world.broker(1) as first, world.broker(2) as second:
            await world.topics.create("t", 1, {})
            await _joined(first)
            await first.commit("g", "m", None, 1, offset(3))
            await first.beat("g", beat("m", -1))
            _dies(world)
            found = [each for broker in (first, second) for each in await broker.listed()]
            assert {(each.kind, each.state.value) for each in found} == {("consumer", "Empty")}
            assert await second.delete("g") is GroupError.NONE
            assert await rows_of(world.store) == []

    with_world(test)
