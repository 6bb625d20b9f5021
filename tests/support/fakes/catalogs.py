"""Catalogs of every kind, to be held to one contract."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from lakestream.catalog import TableCatalog
from lakestream.model import WrittenFile
from support.fakes.simulated import runner
from support.tables.files import write_file


class Bench:
    """A catalog and a way to write files for it."""

    def __init__(
        self, catalog: TableCatalog, folder: Path, *, collectable: bool = True, takes_columns: bool = True
    ) -> None:
        """`collectable`: the catalog keeps no history of its own that would need files of the past. `takes_columns`: it
        takes new ones from PyIceberg."""
        self.catalog = catalog
        self.collectable = collectable
        self.takes_columns = takes_columns
        self._folder = folder

    def file(self, first: int, end: int, *, partition: int = 0, spec_id: int = 0) -> WrittenFile:
        return write_file(self._folder, first, end, partition=partition, spec_id=spec_id)


@dataclass(frozen=True, slots=True)
class Open:
    backend: str
    """The metadata store's."""
    opened: Callable[[], AbstractAsyncContextManager[Bench]]


def run(bench: Open, test: Callable[[Bench], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with bench.opened() as opened:
            await test(opened)

    with runner(bench.backend) as loop:
        loop.run(whole())
