"""One stream's real table in a folder, with a clock and a store that a test can bend."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import StaticTable

from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.errors import Unavailable
from lakestream.metadata.store import Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import Runtime
from lakestream.table.view import View
from support.tables.files import ORDERS, write_file


@dataclass
class HandClock:
    ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


class WatchedStore(MemoryStore):
    """`before` runs between staging and the change of the pointer; `lost` applies the change and does not answer."""

    before: Callable[[], Awaitable[None]] | None = None
    lost = False

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        if self.before is not None:
            before, self.before = self.before, None
            await before()
        outcomes = await super().transact(transactions)
        if self.lost:
            raise Unavailable("no answer")
        return outcomes


class StreamTable:
    """One stream's table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.folder = folder
        runtime = Runtime(self.clock, random.Random(5))
        self.store = WatchedStore(runtime)
        self.tables = PyIcebergTables(self.store, f"file://{folder}/bucket", runtime)

    async def append(self, view: View, count: int = 2, *, spec_id: int = 0) -> View:
        start = view.frontier[0]
        file = write_file(self.data, start, start + count, spec_id=spec_id)
        return await self.tables.commit(view, add=[file], remove=[], frontier=(start + count,))

    @property
    def root(self) -> Path:
        return self.folder / "bucket/tables/orders__11111111"

    @property
    def data(self) -> Path:
        return self.root / "data"

    def metadata_files(self) -> set[str]:
        return {path.name for path in (self.root / "_iceberg").iterdir()}

    async def offsets(self) -> list[int]:
        """What another reader of the same metadata sees."""
        location = await self.tables.pointer(ORDERS)
        assert location is not None
        return sorted(StaticTable.from_metadata(location).scan().to_arrow()["_offset"].to_pylist())


def renamed(manifest: ManifestFile, path: str, size_bytes: int) -> ManifestFile:
    """The entry of a manifest that lies elsewhere."""
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=size_bytes,
        partition_spec_id=manifest.partition_spec_id,
        content=manifest.content,
        sequence_number=manifest.sequence_number,
        min_sequence_number=manifest.min_sequence_number,
        added_snapshot_id=manifest.added_snapshot_id,
    )


async def run_with_table(folder: Path, test: Callable[[StreamTable, View], Awaitable[None]]) -> None:
    table = StreamTable(folder)
    try:
        await test(table, await table.tables.create(ORDERS, "orders", 1))
    finally:
        await table.tables.close()
