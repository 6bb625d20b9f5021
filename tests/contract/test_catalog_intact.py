"""From where on the rows of a table are as they were appended, in every `TableCatalog`."""

from support.fakes.catalogs import Bench, Open, run
from support.tables.files import ORDERS


def test_rows_are_intact_while_commits_add_and_merge_and_begin_anew_when_some_are_taken_out(bench: Open) -> None:
    async def test(bench: Bench) -> None:
        view = await bench.catalog.create(ORDERS, "orders", 2)
        a, b = bench.file(0, 3), bench.file(3, 5)
        view = await bench.catalog.commit(view, add=[a], remove=[], frontier=(3, 0))
        view = await bench.catalog.commit(view, add=[b], remove=[], frontier=(5, 0))
        merged = bench.file(0, 5)
        view = await bench.catalog.commit(view, add=[merged], remove=view.files, frontier=(5, 0))
        assert view.intact_from == (0, 0)
        larger = bench.file(0, 7)
        view = await bench.catalog.commit(view, add=[larger], remove=view.files, frontier=(7, 0))
        assert view.intact_from == (0, 0)
        fewer = bench.file(2, 7)
        view = await bench.catalog.commit(view, add=[fewer], remove=view.files, frontier=(7, 0))
        assert view.intact_from == (7, 0)
        view = await bench.catalog.commit(view, add=[bench.file(7, 9)], remove=[], frontier=(9, 0))
        assert view.intact_from == (7, 0)
        assert await bench.catalog.load(ORDERS) == view

    run(bench, test)
