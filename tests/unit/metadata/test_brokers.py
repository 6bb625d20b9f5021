"""Ids are leases: one process each, free again seconds after a crash, and never two that are announced."""

import asyncio

import pytest
from support.fakes.loops import run
from support.groups.coordinators import Clock

from lakestream.errors import FencedError, RequestError
from lakestream.metadata.brokers import HIGHEST_ID, Broker, Brokers
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import Runtime, system

TTL_MS = 6_000


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(Runtime(self.clock, system().random))
        self.brokers = Brokers(self.store, ttl_ms=TTL_MS)
        self._sessions = 0

    async def start(self, port: int, broker_id: int | None = None) -> Broker:
        """A process: its session is one of its own."""
        self._sessions += 1
        broker = await self.brokers.take_id(f"s{self._sessions}", ("host", port), None, broker_id)
        await self.brokers.register(broker)
        return broker

    async def ids(self) -> dict[int, str]:
        return {broker.broker_id: broker.session for broker in await self.brokers.live()}


def test_brokers_with_one_configuration_get_ids_of_their_own() -> None:
    async def test() -> None:
        world = World()
        started = await asyncio.gather(*(world.start(9000 + number) for number in range(5)))
        assert sorted(broker.broker_id for broker in started) == [1001, 1002, 1003, 1004, 1005]
        await world.brokers.leave(started[2])
        gone = started[2].broker_id
        assert gone not in await world.ids()
        assert (await world.start(9100)).broker_id == gone
        assert await world.store.range("brokers", "broker/", "broker0", limit=9) != []

    run(test())


def test_nobody_hears_of_a_broker_that_has_an_id_and_does_not_serve_yet() -> None:
    async def test() -> None:
        world = World()
        broker = await world.brokers.take_id("s", ("host", 1), None, None)
        assert await world.brokers.live() == []
        await world.brokers.register(broker)
        assert await world.brokers.live() == [broker]

    run(test())


def test_a_crashed_broker_is_gone_when_its_lease_ends() -> None:
    async def test() -> None:
        world = World()
        one, two = await world.start(1), await world.start(2)
        world.clock.ms += TTL_MS // 2
        await world.brokers.heartbeat(one)
        world.clock.ms += TTL_MS // 2 + 1
        assert await world.brokers.live() == [one]
        assert world.brokers.known == [one]
        await world.brokers.heartbeat(two)
        assert await world.brokers.live() == [one, two]

    run(test())


def test_a_process_that_comes_back_to_its_address_has_its_id_at_once() -> None:
    async def test() -> None:
        world = World()
        await world.start(1)
        before = await world.start(2)
        for wanted in (None, before.broker_id):
            again = await world.start(2, wanted)
            assert again.broker_id == before.broker_id
            assert (await world.ids())[1002] == again.session != before.session
            with pytest.raises(FencedError):
                await world.brokers.heartbeat(before)
            await world.brokers.leave(before)
            assert (await world.ids())[1002] == again.session, "who was replaced takes nobody else away"

    run(test())


def test_an_id_of_a_live_broker_elsewhere_is_refused_and_that_of_a_dead_one_given() -> None:
    async def test() -> None:
        world = World()
        first = await world.start(1, 7)

        async def beats() -> None:
            while True:
                world.clock.ms += 100
                await world.brokers.heartbeat(first)
                await asyncio.sleep(0.05)

        beating = asyncio.create_task(beats())
        with pytest.raises(RequestError, match="broker id 7 is that of host:1, which is alive"):
            await world.start(2, 7)
        beating.cancel()
        assert await world.ids() == {7: first.session}

        async def passes() -> None:
            while True:
                world.clock.ms += TTL_MS
                await asyncio.sleep(0.02)

        passing = asyncio.create_task(passes())
        second = await world.start(2, 7)
        passing.cancel()
        with pytest.raises(FencedError, match="must start again"):
            await world.brokers.heartbeat(first)
        assert second.broker_id == 7

    run(test())


def test_a_paused_broker_is_announced_again_although_another_had_its_id_meanwhile() -> None:
    async def test() -> None:
        world = World()
        paused = await world.start(1)
        world.clock.ms += TTL_MS + 1
        other = await world.start(2)
        assert other.broker_id == paused.broker_id
        await world.brokers.leave(other)
        await world.brokers.heartbeat(paused)
        assert await world.brokers.live() == [paused]

    run(test())


@pytest.mark.parametrize("wrong", [-1, HIGHEST_ID + 1])
def test_numbers_that_are_no_ids(wrong: int) -> None:
    async def test() -> None:
        with pytest.raises(RequestError, match="is no broker id"):
            await World().start(1, wrong)

    run(test())
