"""Rows that an engine inserts become records exactly once, whatever fault hits at whatever step.

The same code as in production, in this process. A fault hits one step of the door that takes a commit; then the engine
sends it again through another door, or nobody does and a door resumes what was left.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from support.clients.records import parse
from support.worlds.inserting import InsertWorld, insert_world, keyless, placed
from support.worlds.memory import Crash, Fuse

from lakestream.bucket.found import find_wal
from lakestream.bucket.rebuilding import rebuild
from lakestream.catalog.engines.unplaced import Unplaced
from lakestream.errors import LakestreamError, TableRefused, Unavailable
from lakestream.metadata.counters import cluster_id
from lakestream.metadata.inserts import InsertedSection, Inserts, LiveInsert
from lakestream.metadata.log.commit import Batch
from lakestream.stream.inserting import appending, batching, inserter
from lakestream.stream.inserting.inserter import GIVE_UP_MS

LAST_STEP = 500
FIRST = [f"a{number}".encode() for number in range(9)]
SECOND = [f"b{number}".encode() for number in range(8)]
VALUES = sorted([*FIRST, *SECOND])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several objects for one insert, and no long waits."""
    monkeypatch.setattr(batching, "OBJECT_BYTES", 150)
    monkeypatch.setattr(inserter, "_LOOK_AGAIN_S", 0.001)
    monkeypatch.setattr(appending, "_RETRY_FIRST_MS", 1)


async def begun() -> tuple[InsertWorld, Unplaced]:
    world = await insert_world()
    return world, await world.written(keyless(*FIRST), placed(1, SECOND))


async def at_every_step(scenario: Callable[[int], Awaitable[Fuse]]) -> None:
    for at in range(1, LAST_STEP):
        fuse = await scenario(at)
        if not fuse.blown:
            assert at > 40, f"only {at} steps: {fuse.trail}"
            return
    raise AssertionError("it never ended")


async def send(world: InsertWorld, rows: Unplaced, fuse: Fuse) -> LakestreamError | None:
    """How the engine is answered; a crash is no answer."""
    try:
        return await world.send(world.door(fuse), rows)
    except Crash as crash:
        return Unavailable(str(crash))


async def check(world: InsertWorld, rows: Unplaced, *, taken: bool) -> None:
    """All of it is there once, in the order of its rows, or nothing; and nothing that is dead stays."""
    found = await world.found()
    by_partition = [[row.value for row in found if row.partition == index] for index in range(3)]
    assert sorted(row.value for row in found) == (VALUES if taken else [])
    for values in by_partition:
        assert values == sorted(values)
    assert [row.offset for row in found if row.partition == 1] == list(range(len(by_partition[1])))
    assert not taken or by_partition[1][-len(SECOND) :] == SECOND
    await world.world.collect_all()
    assert await world.world.wal_keys() == []
    assert sorted(row.value for row in await world.found()) == (VALUES if taken else [])
    assert bool(await world.left(rows)) != taken


async def test_a_crash_at_any_step_and_the_same_commit_again() -> None:
    async def scenario(at: int) -> Fuse:
        world, rows = await begun()
        fuse = Fuse(at)
        await send(world, rows, fuse)
        world.world.clock.ms += 11_000
        assert await world.send(world.door(), rows) is None
        assert await world.send(world.door(), rows) is None
        await check(world, rows, taken=True)
        return fuse

    await at_every_step(scenario)


async def test_a_crash_at_any_step_and_nobody_asks_again() -> None:
    outcomes = set()

    async def scenario(at: int) -> Fuse:
        world, rows = await begun()
        fuse = Fuse(at)
        answer = await send(world, rows, fuse)
        await world.world.collect_all()
        world.world.clock.ms += GIVE_UP_MS
        door = world.door()
        await door.resume()
        assert await door.resume() == 0
        taken = bool(await world.found())
        assert taken or answer is not None
        outcomes.add(taken)
        await check(world, rows, taken=taken)
        return fuse

    await at_every_step(scenario)
    assert outcomes == {True, False}


async def test_a_call_that_gets_no_answer_at_any_step() -> None:
    async def scenario(at: int) -> Fuse:
        world, rows = await begun()

        async def lost() -> None:
            raise Unavailable("no answer came")

        fuse = Fuse(at, lost)
        await send(world, rows, fuse)
        world.world.clock.ms += 11_000
        assert await world.send(world.door(), rows) is None
        await world.door().resume()
        await check(world, rows, taken=True)
        return fuse

    await at_every_step(scenario)


async def test_a_collector_that_passes_at_any_step() -> None:
    """The door sleeps until its objects are below the fence: they are kept, and copied into newer ones."""

    async def scenario(at: int) -> Fuse:
        world, rows = await begun()
        fuse = Fuse(at, world.world.collect_all)
        answer = await send(world, rows, fuse)
        assert answer is None, answer
        await check(world, rows, taken=True)
        return fuse

    await at_every_step(scenario)


@pytest.mark.parametrize("later_ms", [0, 11_000])
async def test_two_doors_with_the_same_commit(later_ms: int) -> None:
    async def scenario(at: int) -> Fuse:
        world, rows = await begun()

        async def other() -> None:
            world.world.clock.ms += later_ms
            await world.send(world.door(), rows)

        fuse = Fuse(at, other)
        answer = await send(world, rows, fuse)
        assert not isinstance(answer, TableRefused), answer
        world.world.clock.ms += 11_000
        assert await world.send(world.door(), rows) is None
        await world.door().resume()
        await check(world, rows, taken=True)
        return fuse

    await at_every_step(scenario)


async def test_an_insert_that_is_given_up_at_any_step_is_once_in_a_rebuilt_log() -> None:
    """Another door gives it up by its own clock. Of the objects from before that nothing tells but their producer."""
    given_up = 0

    async def scenario(at: int) -> Fuse:
        nonlocal given_up
        world, rows = await begun()

        async def give_up() -> None:
            nonlocal given_up
            world.world.clock.ms += GIVE_UP_MS
            given_up += await world.door().resume()

        fuse = Fuse(at, give_up)
        await send(world, rows, fuse)
        assert await world.send(world.door(), rows) is None
        assert await rebuilt_values(world) == VALUES
        await check(world, rows, taken=True)
        return fuse

    await at_every_step(scenario)
    assert given_up


async def rebuilt_values(world: InsertWorld) -> list[bytes]:
    """Of the table and of the logs, as they would be if the metadata store were lost now."""
    objects = world.world.objects
    cluster = await cluster_id(world.world.store, world.world.runtime)
    wal = await find_wal(objects, (cluster,), lambda _: None)
    view = await world.world.catalog_on(world.world.store).load(world.topic.topic_id)
    values = [row.value for row in await world.world.rows()]
    for partition in world.topic.each_partition():
        sections, fates = wal.sections.get(partition, ()), wal.fates.get(partition, {})
        found = await rebuild(partition, view.frontier[partition.index], sections, fates, {}, objects.get_range)
        for extent in found.extents:
            data = await objects.get_range(extent.object_key, extent.position, extent.length)
            values += [record.value for record in parse([bytes(data)])]
    return sorted(values)


async def test_a_commit_whose_upload_failed_may_be_sent_again_at_once() -> None:
    world, rows = await begun()
    objects: Any = world.world.objects
    door, put = world.door(), objects.put

    async def fails(key: str, *args: Any, **kwargs: Any) -> None:
        raise Unavailable("the store is down")

    objects.put = fails
    answer = await world.send(door, rows)
    assert isinstance(answer, Unavailable)
    assert "no row was inserted" in str(answer)
    objects.put = put
    assert await world.send(door, rows) is None
    await check(world, rows, taken=True)


async def test_the_same_rows_in_another_commit_are_inserted_again() -> None:
    world, rows = await begun()
    assert await world.send(world.door(), rows) is None
    again = await world.written(keyless(*FIRST), placed(1, SECOND))
    assert await world.send(world.door(), again) is None
    assert sorted(row.value for row in await world.found()) == sorted([*VALUES, *VALUES])


async def test_a_collector_that_knows_of_no_inserts_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: objects that only an insert needs are taken for dead."""

    async def nothing(self: Inserts) -> list[LiveInsert]:
        return []

    monkeypatch.setattr(Inserts, "live", nothing)
    with pytest.raises(AssertionError, match="wal/"):
        await test_a_collector_that_passes_at_any_step()


async def test_a_door_that_forgets_its_producer_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: what is appended again is appended by somebody else, so the log takes it for new."""
    numbers = count(1_000_000)
    batches = appending._batches

    def by_another(live: LiveInsert, section: InsertedSection) -> list[Batch]:
        return [replace(batch, producer_id=next(numbers)) for batch in batches(live, section)]

    monkeypatch.setattr(appending, "_batches", by_another)
    with pytest.raises(AssertionError):
        await test_a_crash_at_any_step_and_the_same_commit_again()


async def test_a_door_that_answers_before_it_has_decided_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: of what was only begun nothing is left when the door ends."""

    async def taken(self: inserter.Inserter, topic_id: UUID, snapshot_id: int) -> bool:
        return await self._inserts.find(topic_id, snapshot_id) is not None

    monkeypatch.setattr(inserter.Inserter, "is_taken", taken)
    with pytest.raises(AssertionError):
        await test_a_crash_at_any_step_and_the_same_commit_again()
