"""Transactions on their way into a table: what becomes rows, when, and with what else, in one snapshot."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from support.worlds.catalogs import CATALOGS, over
from support.worlds.memory import MemoryWorld
from support.worlds.transactions import HandmadeLog, Under

from lakestream.frontier.lag import read_lag
from lakestream.frontier.moving.fresh import Freshener, Freshness
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import FreshSettings
from lakestream.metadata.log.partition import read_extents
from lakestream.metadata.topics.list import Topic, Topics

WAIT = {"lakestream.table.transaction.wait.ms": "10000"}


@pytest.fixture(params=CATALOGS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemoryWorld]:
    async with over(request.param, tmp_path)() as opened:
        yield opened


@pytest.fixture
async def simulated() -> MemoryWorld:
    return MemoryWorld()


async def log_of(world: MemoryWorld, partitions: int) -> HandmadeLog:
    topic = await world.create("orders", partitions, WAIT)
    return HandmadeLog(world, topic)


async def rows(world: MemoryWorld) -> list[tuple[int, int, bytes]]:
    return [(row.partition, row.offset, row.value) for row in await world.rows()]


async def frontier(world: MemoryWorld, topic: Topic) -> tuple[int, ...]:
    return (await world.catalog_on(world.store).load(topic.topic_id)).frontier


async def ticked(worker: Worker) -> None:
    tick = await worker.tick()
    assert not tick.failures, tick.failures


async def test_only_what_was_committed_becomes_rows(world: MemoryWorld) -> None:
    log = await log_of(world, 2)
    await log.append(("", 0, [b"plain"]), ("a", 0, [b"a1", b"a2"]), ("b", 0, [b"b1"]), ("a", 0, [b"a3"]))
    await log.append(("b", 1, [b"b2"]), ("c", 1, [b"c1", b"c2"]))
    await log.end("a")
    await log.end("b", commits=False)
    await log.end("c", commits=False)
    await log.append(("", 0, [b"after"]))
    await world.drain()
    assert await rows(world) == sorted(log.committed)
    # Markers are two in each partition.
    assert await frontier(world, log.topic) == (8, 5)
    view = await world.catalog_on(world.store).load(log.topic.topic_id)
    assert view.intact_from in ((), (0, 0))
    assert [await read_extents(world.store, each) for each in log.topic.each_partition()] == [[], []]


async def test_a_table_goes_on_where_every_record_was_aborted(world: MemoryWorld) -> None:
    log = await log_of(world, 1)
    await log.append(("a", 0, [b"x", b"y"]))
    await log.end("a", commits=False)
    await world.drain()
    assert await rows(world) == []
    assert await frontier(world, log.topic) == (3,)
    await log.append(("a", 0, [b"z"]))
    await log.end("a")
    await world.drain()
    assert await rows(world) == [(0, 3, b"z")]


async def test_an_open_transaction_holds_up_only_what_is_behind_it(simulated: MemoryWorld) -> None:
    """Its beginning lies within an extent."""
    world = simulated
    log = await log_of(world, 1)
    await log.append(("", 0, [b"before", b"also"]), ("a", 0, [b"a1"]), ("", 0, [b"behind"]))
    await world.drain()
    assert await rows(world) == [(0, 0, b"before"), (0, 1, b"also")]
    assert await frontier(world, log.topic) == (2,)
    [lag] = await read_lag(world.store, Topics(world.store, world.runtime), world.clock.ms)
    assert (lag.records, lag.held, lag.stable) == (2, 2, (2,))
    world.clock.ms += 60_000
    await world.drain()
    assert await frontier(world, log.topic) == (2,)
    await log.end("a")
    await world.drain()
    assert await rows(world) == sorted(log.committed)


async def test_a_transaction_over_partitions_is_in_one_snapshot(simulated: MemoryWorld) -> None:
    world = simulated
    log = await log_of(world, 3)
    await log.append(("a", 0, [b"a0"]), ("a", 1, [b"a1"]), ("", 2, [b"plain"]), ("a", 2, [b"a2"]))
    prepared = log.prepare("a")
    worker, _ = world.pipeline()
    for index in (0, 1):
        await log.mark(prepared, index)
        await ticked(worker)
        assert await rows(world) == [(2, 0, b"plain")]
    await log.mark(prepared, 2)
    await ticked(worker)
    assert await rows(world) == sorted(log.committed)


async def test_what_waits_too_long_comes_in_parts_and_the_snapshot_says_so(tmp_path: Path) -> None:
    """Each transaction writes on after the next has begun, so there is always one that every vector would split."""
    async with over("pyiceberg", tmp_path)() as world:
        log = await log_of(world, 2)
        worker, _ = world.pipeline()
        await log.append(("t0", 0, [b"t0"]), ("t0", 1, [b"t0"]))
        for number in range(14):
            before, name = f"t{number}", f"t{number + 1}"
            await log.append((name, 0, [b"first"]), (name, 1, [b"first"]), (before, 0, [b"last"]))
            await log.end(before)
            await ticked(worker)
            told = [each for each in await splits(world, log.topic) if each]
            if number < 10:
                assert (told, await rows(world)) == ([], [])
            world.clock.ms += 1_000
        # All of it went that was stable then: t10 has more behind the beginning of t11, which was open.
        assert told == ['["t10"]']
        assert len(await rows(world)) == 3 * 10 + 2
        await log.end("t14")
        await world.drain()
        assert await rows(world) == sorted(log.committed)


async def splits(world: MemoryWorld, topic: Topic) -> list[str]:
    current = await world.catalog.commits.load(topic.topic_id)  # type: ignore[attr-defined]
    return [each.summary.get("lakestream.split-transactions") or "" for each in current.metadata.snapshots]


async def test_a_marker_that_is_below_the_frontier_is_no_marker_to_come(simulated: MemoryWorld) -> None:
    """Enlisted where it wrote nothing: its marker there goes into the table long before its records do."""
    world = simulated
    log = await log_of(world, 2)
    log.enlist("a", 1)
    await log.append(("late", 0, [b"l"]), ("a", 0, [b"a"]))
    await log.end("a")
    worker, _ = world.pipeline()
    await ticked(worker)
    assert await frontier(world, log.topic) == (0, 1)
    await log.end("late")
    await ticked(worker)
    assert await rows(world) == sorted(log.committed)


async def test_a_cut_takes_what_is_committed_and_says_what_it_is(simulated: MemoryWorld) -> None:
    world = simulated
    log = await log_of(world, 2)
    await world.pipeline()[0].tick()
    freshener = Freshener(world.pipeline()[0]._lake, Topics(world.store, world.runtime), FreshSettings())
    await log.append(("", 0, [b"plain"]), ("a", 0, [b"a0"]), ("a", 1, [b"a1"]))
    assert await freshener.cut(log.topic.topic_id) is Freshness.COMMITTED
    assert await rows(world) == [(0, 0, b"plain")]
    prepared = log.prepare("a")
    await log.mark(prepared, 0)
    assert await freshener.cut(log.topic.topic_id) is Freshness.COMMITTED
    assert await rows(world) == [(0, 0, b"plain")]
    await log.mark(prepared, 1)
    assert await freshener.cut(log.topic.topic_id) is Freshness.FRESH
    assert await rows(world) == sorted(log.committed)
    await freshener.close()


async def test_a_transaction_larger_than_a_tick_comes_whole(simulated: MemoryWorld) -> None:
    world = simulated
    world.settings = type(world.settings)(max_tick_bytes=150, min_tile_bytes=1, target_tile_bytes=200, own_file_bytes=1)
    log = await log_of(world, 2)
    for number in range(10):
        await log.append(("a", 0, [b"%d" % number]), ("a", 1, [b"%d" % number]))
    await log.end("a")
    worker, _ = world.pipeline()
    await ticked(worker)
    assert await rows(world) == sorted(log.committed)


@pytest.mark.parametrize("seed", range(25))
async def test_no_snapshot_has_a_part_of_a_transaction(simulated: MemoryWorld, seed: int) -> None:
    """Random interleavings over three partitions, two workers and a door at once, while nothing waits too long."""
    world, random = simulated, Random(seed)
    world.settings = type(world.settings)(
        max_tick_bytes=random.choice((150, 1 << 20)), min_tile_bytes=1, target_tile_bytes=200, own_file_bytes=1
    )
    log = await log_of(world, 3)
    workers = [world.pipeline()[0] for _ in range(2)]
    freshener = Freshener(world.pipeline()[0]._lake, Topics(world.store, world.runtime), FreshSettings())
    marking: list[tuple[Under, int]] = []
    for _ in range(60):
        match random.randrange(6):
            case 0 | 1 | 2:
                ending = {found.name for found, _ in marking}
                name = random.choice(sorted({"", "a", "b", "c"} - ending))
                sent = [
                    (name, index, [b"%d" % random.getrandbits(30) for _ in range(random.randint(1, 2))])
                    for index in random.sample(range(3), random.randint(1, 2))
                ]
                await log.append(*sent)
            case 3 if log._open:
                prepared = log.prepare(random.choice(sorted(log._open)), commits=random.random() < 0.7)
                marking += [(prepared, index) for index in prepared.enlisted]
            case 4 if marking:
                found = marking.pop(random.randrange(len(marking)))
                await log.mark(*found)
            case _:
                await random.choice([*(worker.tick for worker in workers), _cut(freshener, log.topic)])()
        _check_whole(await rows(world) if world.tables else [], log)
    while marking:
        await log.mark(*marking.pop())
    for name in sorted(log._open):
        await log.end(name, commits=random.random() < 0.5)
    await world.drain()
    assert await rows(world) == sorted(log.committed)
    await freshener.close()


def _cut(freshener: Freshener, topic: Topic):  # type: ignore[no-untyped-def]
    async def cut() -> None:
        assert await freshener.cut(topic.topic_id) is not Freshness.FAILED

    return cut


def _check_whole(found: list[tuple[int, int, bytes]], log: HandmadeLog) -> None:
    there = set(found)
    assert len(there) == len(found)
    for each in log.transactions:
        mine = there & set(each.rows)
        assert not mine or (each.commits and len(mine) == len(each.rows)), each
