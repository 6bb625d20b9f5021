"""What every `TableCatalog` keeps. One line per implementation in the fixture."""

import asyncio
from unittest.mock import patch

import pytest
from support.fakes.catalogs import Bench, Open, run
from support.tables.files import ORDERS, OTHER

from lakestream.errors import Conflict, InvalidSetting, Unavailable, UnknownStream
from lakestream.metadata.names.pointers import Pointers
from lakestream.metadata.topics.tables import table_name
from lakestream.model import DataFile
from lakestream.table.schema import OFFSET_WINDOW
from lakestream.table.view import View


def paths(view: View) -> set[str]:
    return {file.path for file in view.files}


def test_create_makes_an_empty_table_with_frontier_zero(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 3)
        assert (view.topic_id, view.table, view.frontier) == (ORDERS, "default.orders", (0, 0, 0))
        assert (view.files, view.deletes) == ((), ())
        assert view.location.endswith("/tables/orders__11111111")
        assert await bench.catalog.load(ORDERS) == view
        assert await bench.catalog.pointer(ORDERS) == view.metadata_location

    run(bench, test)


def test_create_is_idempotent_and_keeps_what_is_there(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        first = await bench.catalog.create(ORDERS, "orders", 1)
        moved = await bench.catalog.commit(first, add=[bench.file(0, 3)], remove=[], frontier=(3,))
        assert await bench.catalog.create(ORDERS, "orders", 1) == moved

    run(bench, test)


def test_a_name_of_another_topic_is_a_conflict(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        with pytest.raises(Conflict):
            await bench.catalog.create(OTHER, "orders", 1)
        assert await bench.catalog.load(ORDERS) == view
        with pytest.raises(UnknownStream):
            await bench.catalog.load(OTHER)

    run(bench, test)


def test_no_topic_can_go_on_in_the_table_of_another(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        name = table_name("orders")
        assert await bench.catalog.adoptable(name, 1) is None
        view = await bench.catalog.create(ORDERS, "orders", 1)
        with pytest.raises(InvalidSetting):
            await bench.catalog.adoptable(name, 1)
        assert not await bench.catalog.adopt(OTHER, "others", (0,), table=name)
        assert await bench.catalog.load(ORDERS) == view

    run(bench, test)


def test_two_creators_at_once_get_one_table(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        views = await asyncio.gather(*(bench.catalog.create(ORDERS, "orders", 2) for _ in range(4)))
        assert len({view.metadata_location for view in views}) == 1

    run(bench, test)


def test_an_unknown_topic_has_no_table(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        with pytest.raises(UnknownStream):
            await bench.catalog.load(OTHER)
        assert await bench.catalog.pointer(OTHER) is None
        assert await bench.catalog.detach(OTHER) is None

    run(bench, test)


def test_commit_adds_removes_and_moves_the_frontier_at_once(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 2)
        a, b = bench.file(0, 3), bench.file(0, 5, partition=1, spec_id=1)
        second = await bench.catalog.commit(view, add=[a, b], remove=[], frontier=(3, 5))
        assert paths(second) == {a.path, b.path}
        assert second.frontier == (3, 5)
        assert second.snapshot_id is not None
        assert second.metadata_location != view.metadata_location
        assert await bench.catalog.load(ORDERS) == second

        c = bench.file(0, 8)
        [old] = [file for file in second.files if file.path == a.path]
        third = await bench.catalog.commit(second, add=[c], remove=[old], frontier=(8, 5))
        assert paths(third) == {b.path, c.path}
        assert third.frontier == (8, 5)
        assert third.snapshot_id != second.snapshot_id
        assert await bench.catalog.load(ORDERS) == third

    run(bench, test)


def test_a_view_says_what_its_files_hold(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 2)
        first = OFFSET_WINDOW - 2
        loose, windowed = bench.file(first, first + 4), bench.file(first + 2, first + 4, partition=1, spec_id=1)
        view = await bench.catalog.commit(view, add=[loose, windowed], remove=[], frontier=(first + 4, first + 4))
        assert {file.path: file for file in view.files} == {
            written.path: DataFile(
                path=written.path,
                record_count=written.record_count,
                size_bytes=written.size_bytes,
                partition_min=written.partition_min,
                partition_max=written.partition_max,
                offset_min=written.offset_min,
                offset_max=written.offset_max,
                timestamp_max_ms=written.timestamp_max_ms,
                spec_id=written.spec_id,
            )
            for written in (loose, windowed)
        }

    run(bench, test)


def test_a_stale_view_conflicts_and_changes_nothing(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        stale = await bench.catalog.create(ORDERS, "orders", 1)
        fresh = await bench.catalog.commit(stale, add=[bench.file(0, 3)], remove=[], frontier=(3,))
        with pytest.raises(Conflict):
            await bench.catalog.commit(stale, add=[bench.file(0, 3)], remove=[], frontier=(3,))
        assert await bench.catalog.load(ORDERS) == fresh

    run(bench, test)


def test_of_two_committers_with_one_view_exactly_one_wins(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        for _ in range(3):
            start = view.frontier[0]
            files = [bench.file(start, start + 2) for _ in range(6)]
            outcomes = await asyncio.gather(
                *(bench.catalog.commit(view, add=[file], remove=[], frontier=(start + 2,)) for file in files),
                return_exceptions=True,
            )
            won = [outcome for outcome in outcomes if isinstance(outcome, View)]
            lost = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
            assert (len(won), len(lost)) == (1, 5), outcomes
            assert await bench.catalog.load(ORDERS) == won[0]
            assert len(won[0].files) == len(view.files) + 1
            view = won[0]

    run(bench, test)


@pytest.mark.parametrize("frontier", [(2, 9), (3,), ()])
def test_a_falling_frontier_is_refused(bench: Open, frontier: tuple[int, ...]) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 2)
        view = await bench.catalog.commit(view, add=[], remove=[], frontier=(3, 3))
        with pytest.raises(ValueError, match="fall"):
            await bench.catalog.commit(view, add=[], remove=[], frontier=frontier)
        assert await bench.catalog.load(ORDERS) == view

    run(bench, test)


def test_the_frontier_grows_with_new_partitions(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        view = await bench.catalog.commit(view, add=[], remove=[], frontier=(0, 4))
        assert (await bench.catalog.load(ORDERS)).frontier == (0, 4)

    run(bench, test)


def test_files_cannot_be_added_twice_nor_removed_when_absent(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        file = bench.file(0, 3)
        view = await bench.catalog.commit(view, add=[file], remove=[], frontier=(3,))
        with pytest.raises(ValueError, match="twice"):
            await bench.catalog.commit(view, add=[file], remove=[], frontier=(3,))
        ghost = DataFile("file:///nowhere.parquet", 1, 1, 0, 0, 0, 0, None)
        with pytest.raises(ValueError, match="not in the view"):
            await bench.catalog.commit(view, add=[], remove=[ghost], frontier=(3,))
        assert await bench.catalog.load(ORDERS) == view

    run(bench, test)


def test_an_empty_commit_makes_a_snapshot(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        empty = await bench.catalog.commit(view, add=[], remove=[], frontier=(5,))
        assert empty.snapshot_id is not None
        assert (empty.files, empty.frontier) == ((), (5,))
        full = await bench.catalog.commit(empty, add=[bench.file(5, 6)], remove=[], frontier=(6,))
        again = await bench.catalog.commit(full, add=[], remove=[], frontier=(9,))
        assert again.files == full.files
        assert len({empty.snapshot_id, full.snapshot_id, again.snapshot_id}) == 3

    run(bench, test)


def test_the_pointer_changes_with_the_table_and_only_then(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        assert await bench.catalog.pointer(ORDERS) == await bench.catalog.pointer(ORDERS) == view.metadata_location
        await bench.catalog.create(OTHER, "others", 1)
        assert await bench.catalog.pointer(ORDERS) == view.metadata_location
        moved = await bench.catalog.commit(view, add=[], remove=[], frontier=(1,))
        assert await bench.catalog.pointer(ORDERS) == moved.metadata_location != view.metadata_location

    run(bench, test)


def test_detach_frees_the_name_and_is_idempotent(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        assert await bench.catalog.detach(ORDERS) == "default.orders__11111111"
        assert await bench.catalog.detach(ORDERS) == "default.orders__11111111"
        assert await bench.catalog.pointer(ORDERS) is None
        with pytest.raises(UnknownStream):
            await bench.catalog.load(ORDERS)
        with pytest.raises(Conflict):
            await bench.catalog.commit(view, add=[], remove=[], frontier=(1,))
        with pytest.raises(Conflict):
            await bench.catalog.create(ORDERS, "orders", 1)

    run(bench, test)


def test_named_is_what_one_metadata_holds_on_to(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        with pytest.raises(UnknownStream):
            await bench.catalog.named(ORDERS)
        view = await bench.catalog.create(ORDERS, "orders", 2)
        empty = await bench.catalog.named(ORDERS)
        assert (empty.frontier, empty.collectable) == ((0, 0), bench.collectable)
        a, b, orphan = bench.file(0, 3), bench.file(0, 5, partition=1), bench.file(0, 3)
        view = await bench.catalog.commit(view, add=[a], remove=[], frontier=(3, 0))
        assert a.path not in empty.paths
        view = await bench.catalog.commit(view, add=[b], remove=[], frontier=(3, 5))
        named = await bench.catalog.named(ORDERS)
        assert named.frontier == (3, 5)
        assert {a.path, b.path} <= named.paths
        assert orphan.path not in named.paths
        await bench.catalog.detach(ORDERS)
        with pytest.raises(UnknownStream):
            await bench.catalog.named(ORDERS)

    run(bench, test)


def test_a_name_has_an_owner_while_a_topics_table_holds_it(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        assert await bench.catalog.owner(table_name("orders")) is None
        await bench.catalog.create(ORDERS, "orders", 1)
        assert await bench.catalog.owner(table_name("orders")) == ORDERS
        assert await bench.catalog.owner(table_name("others")) is None
        await bench.catalog.detach(ORDERS)
        assert await bench.catalog.owner(table_name("orders")) is None
        assert await bench.catalog.owner(table_name("orders__11111111")) is None
        await bench.catalog.create(OTHER, "orders", 1)
        assert await bench.catalog.owner(table_name("orders")) == OTHER

    run(bench, test)


def test_a_half_detached_table_still_has_its_owner_and_can_be_detached(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        await bench.catalog.create(ORDERS, "orders", 1)
        with patch.object(Pointers, "rename", side_effect=Unavailable("no answer")), pytest.raises(Unavailable):
            await bench.catalog.detach(ORDERS)
        assert await bench.catalog.pointer(ORDERS) is None
        assert await bench.catalog.owner(table_name("orders")) == ORDERS
        with pytest.raises(Conflict):
            await bench.catalog.create(OTHER, "orders", 1)
        assert await bench.catalog.detach(ORDERS) == "default.orders__11111111"
        assert await bench.catalog.owner(table_name("orders")) is None
        await bench.catalog.create(OTHER, "orders", 1)

    run(bench, test)


def test_a_topic_made_again_gets_a_fresh_table(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        old = await bench.catalog.create(ORDERS, "orders", 1)
        old = await bench.catalog.commit(old, add=[bench.file(0, 3)], remove=[], frontier=(3,))
        await bench.catalog.detach(ORDERS)
        new = await bench.catalog.create(OTHER, "orders", 2)
        assert (new.table, new.frontier, new.files) == ("default.orders", (0, 0), ())
        assert new.location != old.location
        with pytest.raises(Conflict):
            await bench.catalog.commit(old, add=[bench.file(3, 4)], remove=[], frontier=(4,))
        assert await bench.catalog.load(OTHER) == new

    run(bench, test)


def test_a_detach_beside_commits_lets_none_through_afterwards(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 1)
        outcomes = await asyncio.gather(
            bench.catalog.commit(view, add=[], remove=[], frontier=(1,)),
            bench.catalog.detach(ORDERS),
            bench.catalog.commit(view, add=[], remove=[], frontier=(2,)),
            return_exceptions=True,
        )
        assert outcomes[1] == "default.orders__11111111"
        assert await bench.catalog.pointer(ORDERS) is None

    run(bench, test)
