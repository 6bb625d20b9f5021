"""Which offsets and files retention lets go. The rules alone, then on a lake."""

from collections.abc import Mapping
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.batches import batch
from support.worlds import memory as lakes
from support.worlds.memory import MemoryWorld, Producer

from lakestream.frontier.upkeep.maintenance import Maintenance, Step
from lakestream.frontier.upkeep.retention import beyond_size, droppable, older_than
from lakestream.metadata.log.partition import read_head
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import DataFile
from lakestream.table.reading.shares import Share, Shares

SHARES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20), st.none() | st.integers(0, 9), st.integers(0, 30)).map(
        lambda drawn: Share(drawn[0], drawn[0] + drawn[1], drawn[2], drawn[3])
    ),
    max_size=8,
)


@given(SHARES, st.integers(0, 9), st.integers(0, 80))
def test_nothing_young_and_nothing_of_unknown_age_is_passed(shares: list[Share], cutoff: int, frontier: int) -> None:
    start = older_than(shares, cutoff, frontier)
    assert start <= frontier
    for share in shares:
        if share.timestamp_max_ms is None or share.timestamp_max_ms >= cutoff:
            assert start <= share.offset_min
    young = [s for s in shares if s.timestamp_max_ms is None or s.timestamp_max_ms >= cutoff]
    assert start == frontier or any(share.offset_min == start for share in young), "it goes as far as it may"


@given(SHARES, st.integers(-5, 120), st.integers(0, 80))
def test_what_stays_has_the_size_to_keep(shares: list[Share], kept_bytes: int, frontier: int) -> None:
    start = beyond_size(shares, kept_bytes, frontier)
    staying = sum(share.size_bytes for share in shares if share.offset_max >= start)
    assert start == 0 or staying >= kept_bytes
    assert start <= frontier or start == 0


def test_a_shared_file_goes_only_if_all_of_it_may() -> None:
    file = DataFile("f", 2, 10, 0, 1, 0, 9, 5)
    both = {"f": {0: Share(0, 3, 5, 1), 1: Share(7, 9, 5, 1)}}
    assert droppable([file], both, {0: 4, 1: 10}) == (file,)
    assert droppable([file], both, {0: 3, 1: 10}) == ()
    assert droppable([file], both, {0: 4}) == ()
    vague = {"f": {0: Share(0, 3, 5, 0, exact=False)}}
    assert droppable([file], vague, {0: 100}) == ()


DAY = 86_400_000


class Shop:
    """A lake with one topic whose records are written at chosen times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = MemoryWorld()
        self.begin_ms = self.world.clock.ms
        self.producer = Producer(self.world, "p")
        self._monkeypatch = monkeypatch

    async def create(self, partitions: int, configs: Mapping[str, str]) -> Topic:
        topic = await self.world.create("t", partitions)
        self.topic = await Topics(self.world.store, self.world.runtime).alter("t", lambda _: dict(configs))
        return topic

    async def write(self, counts: Mapping[int, int], *, day: int, size: int = 20) -> None:
        """So many records to each partition, then a tick: one commit."""
        made_ms = self.begin_ms + day * DAY
        self._monkeypatch.setattr(lakes, "batch", partial(batch, timestamp_ms=made_ms))
        self.world.clock.ms = max(self.world.clock.ms, made_ms)
        partitions = self.topic.each_partition()
        await self.producer.append(
            {partitions[index]: [b"v%d" % n + b"." * size for n in range(count)] for index, count in counts.items()}
        )
        await self.world.drain()

    async def at(self, day: float) -> list[Step]:
        self.world.clock.ms = self.begin_ms + round(day * DAY)
        worker, _ = self.world.pipeline()
        maintenance = Maintenance(worker._lake, worker._topics, name="m")
        done = await maintenance.run()
        assert done.failures == ()
        return [step for step in done.steps if step.action != "merge files"]

    async def starts(self) -> list[int]:
        heads = [await read_head(self.world.store, partition) for partition in self.topic.each_partition()]
        return [head.head.log_start for head in heads if head is not None]

    async def rows(self) -> set[tuple[int, int]]:
        return {(row.partition, row.offset) for row in await self.world.rows()}


async def test_old_records_leave_the_stream_file_by_file_and_the_table_keeps_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop(monkeypatch)
    await shop.create(2, {"retention.ms": str(2 * DAY)})
    for day in range(4):
        # Partition 1 shares every file with partition 0, whose offsets are far lower.
        await shop.write({0: 1, 1: 5}, day=day)
    before = await shop.rows()
    assert await shop.at(1.5) == []
    assert await shop.at(2.5) == [
        Step("t", "move log start", "partition 0 to 1"),
        Step("t", "move log start", "partition 1 to 5"),
    ]
    assert await shop.at(2.6) == [], "what is done is not done again"
    await shop.at(4.5)
    assert await shop.starts() == [3, 15]
    await shop.at(400)
    assert await shop.starts() == [4, 20]
    assert await shop.rows() == before


async def test_what_is_not_in_the_table_yet_stays_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create(1, {"retention.ms": str(DAY)})
    await shop.write({0: 3}, day=0)
    await shop.producer.append({shop.topic.each_partition()[0]: [b"late"] * 4})
    await shop.at(400)
    assert await shop.starts() == [3]


async def test_a_young_file_below_keeps_what_is_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create(1, {"retention.ms": str(2 * DAY), "lakestream.table.retention.ms": str(2 * DAY)})
    await shop.write({0: 2}, day=0)
    await shop.write({0: 2}, day=9)
    await shop.write({0: 2}, day=1)
    await shop.at(9.5)
    assert await shop.starts() == [2]
    assert await shop.rows() == {(0, offset) for offset in range(2, 6)}


async def test_a_partition_keeps_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create(1, {})
    for day in range(6):
        await shop.write({0: 3}, day=day)
    view = await shop.world.catalog_on(shop.world.store).load(shop.topic.topic_id)
    sizes = {file.offset_min: file.size_bytes for file in view.files}
    topics = Topics(shop.world.store, shop.world.runtime)

    async def keep(size_bytes: int) -> list[int]:
        await topics.alter("t", lambda _: {"retention.bytes": str(size_bytes)})
        await shop.at(10)
        return await shop.starts()

    assert await keep(sum(sizes.values())) == [0]
    assert await keep(sizes[15] + sizes[12]) == [12]
    assert await keep(1) == [15]
    assert await keep(0) == [18]


async def test_old_rows_leave_the_table_by_whole_files_after_the_log_start_has_passed_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop(monkeypatch)
    await shop.create(2, {"lakestream.table.retention.ms": str(2 * DAY)})
    for day in range(4):
        await shop.write({0: 1, 1: 5}, day=day)
    steps = await shop.at(3.5)
    assert [(step.action, step.files, step.rows) for step in steps] == [
        ("move log start", 0, 0),
        ("move log start", 0, 0),
        ("drop rows", 2, 12),
    ]
    assert await shop.starts() == [2, 10]
    assert await shop.rows() == {(0, 2), (0, 3)} | {(1, offset) for offset in range(10, 20)}
    frontier = (await shop.world.catalog_on(shop.world.store).load(shop.topic.topic_id)).frontier
    assert frontier == (4, 20)
    await shop.at(400)
    assert await shop.rows() == set()
    await shop.write({0: 1}, day=401)
    assert await shop.rows() == {(0, 4)}


async def test_a_topic_that_only_compacts_keeps_its_log_start(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create(1, {"retention.ms": "1", "cleanup.policy": "compact"})
    await shop.write({0: 3}, day=0)
    await shop.at(9)
    assert await shop.starts() == [0]


async def test_a_file_whose_bounds_nobody_wrote_down_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create(2, {})
    await shop.write({0: 1, 1: 3}, day=0)
    [file] = (await shop.world.catalog_on(shop.world.store).load(shop.topic.topic_id)).files
    bare = DataFile(file.path, file.record_count, file.size_bytes, None, None, None, None, None)
    shares = Shares(shop.world.objects)
    assert [share.exact for share in shares.of(bare, 2).values()] == [False, False]
    await shares.learn([bare], 0)
    assert not shares.of(bare, 2)[0].exact
    await shares.learn([bare], 1)
    known = shares.of(bare, 2)
    assert [(s.offset_min, s.offset_max, s.timestamp_max_ms) for s in known.values()] == [
        (0, 0, shop.begin_ms),
        (0, 2, shop.begin_ms + 2),
    ]
    await shop.world.objects.delete([file.path.removeprefix(shop.world.objects.url + "/")])
    await shares.learn([bare], 1)
    assert shares.of(bare, 2) == known
