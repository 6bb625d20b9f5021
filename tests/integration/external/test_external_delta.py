"""A Delta mirror beside a table in an external catalog: it shows what the catalog's table shows, whoever wrote it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.servers.catalogs import EXTERNAL, QUICK, Place, external_place
from support.servers.s3 import environment
from support.tables.delta import CONFIGS, KEYS, SETTINGS, Rows, expected, tuples
from support.tables.files import write_file

from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.mirrored import TAG, IcebergSide
from lakestream.frontier.delta import Mirrored, Mirrors
from lakestream.frontier.delta.rs import DeltaRs
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.runtime import system
from lakestream.table.schema import DATA_FOLDER

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")
NAME = ("default", "orders")


@pytest.fixture(params=[pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in EXTERNAL])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with external_place(request.param, request, tmp_path) as made:
        yield made


class Lake:
    def __init__(self, place: Place, folder: Path, tables: PyIcebergTables, topics: Topics, topic: Topic) -> None:
        self._options = {**environment(place.io["s3.endpoint"]), "AWS_ALLOW_HTTP": "true"} if place.io else {}
        if place.io:
            self._options["AWS_ENDPOINT_URL"] = place.io["s3.endpoint"]
        self._folder = folder
        self._tables, self._topics, self._topic = tables, topics, topic
        self.outsider = place.outsider()

    async def append(self, count: int) -> None:
        view = await self._tables.load(self._topic.topic_id)
        start = view.frontier[0]
        local = write_file(self._folder, start, start + count, spec_id=1)
        content = Path(local.path.removeprefix("file://"))
        file = replace(local, path=f"{view.location}/{DATA_FOLDER}/{content.name}")
        with self._tables.commits.stager.files.io.new_output(file.path).create() as output:
            output.write(content.read_bytes())
        await self._tables.commit(view, add=[file], remove=[], frontier=(start + count,))

    async def mirror(self) -> Mirrored:
        """By a fresh process."""
        delta = DeltaRs(self._options)
        try:
            side = IcebergSide(self._tables.commits)
            return await Mirrors(self._tables, side, delta, self._topics, system(), SETTINGS).mirror()
        finally:
            delta.close()

    async def both(self) -> tuple[Rows, Rows]:
        """What engines find: in the catalog's table, and in the mirror."""
        view = await self._tables.load(self._topic.topic_id)
        table = self.outsider.load_table(NAME)
        mirror: pa.Table = DeltaTable(view.location, storage_options=self._options).to_pyarrow_table(columns=list(KEYS))
        return tuples(table.scan(selected_fields=KEYS).to_arrow()), tuples(mirror)


async def test_the_mirror_follows_the_catalogs_table(place: Place, tmp_path: Path) -> None:
    store = MemoryStore(system())
    tables, topics = place.tables(store, system()), Topics(store, system())
    topic = await topics.create("orders", 1, CONFIGS)
    await tables.create(topic.topic_id, topic.name, topic.partitions)
    lake = Lake(place, tmp_path, tables, topics, topic)
    try:
        for end in (6, 12):
            await lake.append(6)
            assert (await lake.mirror()).failures == ()
            assert await lake.both() == (expected(end), expected(end))
        assert await lake.mirror() == Mirrored(0)
        await check_rewrite(lake)
        if (await tables.named(topic.topic_id)).collectable:
            await check_held(lake, tables, topic)
    finally:
        lake.outsider.close()
        await tables.close()


async def check_rewrite(lake: Lake) -> None:
    """An engine deletes a row, which rewrites its file."""
    lake.outsider.load_table(NAME).delete("_offset = 3")
    assert await lake.mirror() == Mirrored(1)
    rows = [row for row in expected(12) if row[1] != 3]
    assert await lake.both() == (rows, rows)


async def check_held(lake: Lake, tables: PyIcebergTables, topic: Topic) -> None:
    """What a mirror shows that cannot follow is held in the catalog's table, and let go afterwards. Nessie shows no
    tags, and there nothing is ever deleted."""
    side, shown = IcebergSide(tables.commits), await tables.load(topic.topic_id)
    await side.hold(topic.topic_id, shown.snapshot_id)
    await lake.append(6)
    assert lake.outsider.load_table(NAME).refs()[TAG].snapshot_id == shown.snapshot_id
    assert (await lake.mirror()).failures == ()
    assert TAG not in lake.outsider.load_table(NAME).refs()
    rows = [row for row in expected(18) if row[1] != 3]
    assert await lake.both() == (rows, rows)
