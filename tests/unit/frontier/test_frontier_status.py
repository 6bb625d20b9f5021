"""What the pipeline tells of itself, and how far tables are said to be behind."""

from support.worlds.memory import MemoryWorld, Producer

from lakestream.frontier.lag import TopicLag, read_lag
from lakestream.frontier.lag_gauges import as_gauges
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.frontier.status import StatusBoard, read_status
from lakestream.http.lag import as_json
from lakestream.metadata.log.partition import head_address
from lakestream.metadata.store import Transaction
from lakestream.metadata.topics.list import Topics

STALE_MS = 1_000


async def poisoned(world: MemoryWorld) -> tuple[str, bytearray]:
    """Five topics with three records each; the WAL object of topic 2 is damaged: its key, and what it should be."""
    producer = Producer(world, "one")
    for number in range(5):
        topic = await world.create(f"t{number}", 1)
        await producer.append({topic.each_partition()[0]: [b"a", b"b", b"c"]})
    [key] = [key for key in await world.wal_keys() if key.endswith("3.wal")]
    data = bytearray(await world.objects.get(key))
    data[30] ^= 1
    await world.objects.put(key, [data], overwrite=True)
    data[30] ^= 1
    return key, data


async def tick(world: MemoryWorld, worker: Worker, board: StatusBoard) -> None:
    await board.post(await worker.tick(), worker.failing_ids, world.clock.ms)


async def lag(world: MemoryWorld) -> dict[str, TopicLag]:
    found = await read_lag(world.store, Topics(world.store, world.runtime), world.clock.ms)
    return {each.topic: each for each in found}


async def test_one_poisoned_topic_of_five_is_told_of_and_the_others_go_on() -> None:
    world = MemoryWorld(settings=PipelineSettings(backoff_ms=100))
    key, whole = await poisoned(world)
    before = await lag(world)
    assert [(each.records, each.committed_ms, each.error) for each in before.values()] == [(3, None, "")] * 5
    worker, _ = world.pipeline()
    board = StatusBoard(world.store, "w", stale_after_ms=STALE_MS)
    await tick(world, worker, board)
    after = await lag(world)
    assert {name: each.records for name, each in after.items()} == {"t0": 0, "t1": 0, "t2": 3, "t3": 0, "t4": 0}
    bad = after["t2"]
    assert "checksum" in bad.error
    assert key in bad.error
    assert (bad.failures, bad.retry_in_ms, bad.committed_ms) == (1, 100, None)
    assert after["t1"].committed_ms == world.clock.ms
    assert 'lakestream_table_quarantined{topic="t2"} 1' in as_gauges(after.values())
    assert 'lakestream_table_lag_records{topic="t3"} 0' in as_gauges(after.values())
    assert (as_json(bad)["lag_records"], as_json(bad)["error"]) == (3, bad.error)

    await world.objects.put(key, [whole], overwrite=True)
    world.clock.ms += 100
    await tick(world, worker, board)
    cured = (await lag(world))["t2"]
    assert (cured.records, cured.error, cured.failures, cured.retry_in_ms) == (0, "", 0, 0)
    await world.check_whole()


async def test_an_idle_tick_writes_nothing() -> None:
    world = MemoryWorld(settings=PipelineSettings(backoff_ms=100_000))
    await poisoned(world)
    worker, _ = world.pipeline()
    board = StatusBoard(world.store, "w", stale_after_ms=STALE_MS)
    await tick(world, worker, board)
    rows = await world.store.range("pipeline", "", "~")
    assert len(rows) == 5
    await tick(world, worker, board)
    assert await world.store.range("pipeline", "", "~") == rows


async def test_an_error_that_nobody_meets_any_more_is_taken_down() -> None:
    world = MemoryWorld(settings=PipelineSettings(backoff_ms=100))
    key, whole = await poisoned(world)
    dead, _ = world.pipeline()
    await tick(world, dead, StatusBoard(world.store, "dead", stale_after_ms=STALE_MS))
    await world.objects.put(key, [whole], overwrite=True)
    await world.drain()
    board = StatusBoard(world.store, "next", stale_after_ms=STALE_MS)
    await tick(world, world.pipeline()[0], board)
    assert (await lag(world))["t2"].error, "the other worker may be about to try again"
    world.clock.ms += 100 + STALE_MS + 1
    await tick(world, world.pipeline()[0], board)
    assert not (await lag(world))["t2"].error


async def test_rows_of_deleted_topics_go() -> None:
    world = MemoryWorld()
    topics = Topics(world.store, world.runtime)
    gone, kept = await world.create("gone", 1), await world.create("kept", 1)
    producer = Producer(world, "one")
    for topic in (gone, kept):
        await producer.append({topic.each_partition()[0]: [b"a"]})
    board = StatusBoard(world.store, "w", stale_after_ms=STALE_MS)
    await tick(world, world.pipeline()[0], board)
    await topics.delete(gone.topic_id)
    await board.tidy({topic.topic_id for topic in await topics.list()})
    assert set(await read_status(world.store)) == {kept.topic_id}


async def test_the_age_of_what_waits_is_that_of_its_oldest_record() -> None:
    world = MemoryWorld()
    topic = await world.create("t", 2)
    producer = Producer(world, "one")
    assert (await lag(world))["t"].oldest_ms == 0
    for partition in reversed(topic.each_partition()):
        await producer.append({partition: [b"a"]})
        world.clock.ms += 5_000
    found = (await lag(world))["t"]
    assert (found.frontier, found.end, found.oldest_ms) == ((0, 0), (1, 1), 10_000)


async def test_a_damaged_head_is_told_of() -> None:
    world = MemoryWorld()
    topic = await world.create("t", 1)
    await world.create("u", 1)
    address = head_address(topic.each_partition()[0])
    await world.store.transact([Transaction(address.shard, {}, {address.key: b"nothing of worth"})])
    found = await lag(world)
    assert "damaged" in found["t"].error or "format" in found["t"].error
    assert not found["u"].error
