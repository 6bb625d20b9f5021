"""The Delta mirror on real files, written by delta-rs and read by real engines."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from duckdb_extensions import import_extension
from pyiceberg.types import StringType, TimestampType
from support.servers.s3 import environment, make_bucket, s3_server
from support.tables.delta import CONFIGS, KEYS, Rows, Scene, age, delta_rs, expected, scene, tuples
from support.worlds.memory import MemoryWorld, Producer

from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.mirrored import TAG, IcebergSide
from lakestream.errors import Conflict, StorageError
from lakestream.frontier.delta import Mirrored, Mirrors
from lakestream.frontier.delta.port import MirrorStep
from lakestream.frontier.delta.rs import DeltaRs
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.topics.list import Topics
from lakestream.node.pipeline import open_delta
from lakestream.node.storage.tables import io_properties
from lakestream.runtime import system


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def duck(folder: Path) -> Rows:
    with duckdb.connect() as connection:
        import_extension("delta")
        connection.load_extension("delta")
        return sorted(connection.execute(f"SELECT {', '.join(KEYS)} FROM delta_scan('{folder}')").fetchall())


def polars(folder: Path) -> Rows:
    return sorted(pl.scan_delta(str(folder)).select(KEYS).collect().rows())


ENGINES: dict[str, Callable[[Path], Rows]] = {"delta-rs": delta_rs, "duckdb": duck, "polars": polars}


def test_engines_read_the_same_rows(lake: Scene) -> None:
    assert lake.mirror() == Mirrored(0 if lake.view.snapshot_id is None else 1)
    assert delta_rs(lake.folder) == []
    lake.append(40)
    lake.append(30, partition=1)
    assert lake.mirror() == Mirrored(1)
    lake.append(5)
    assert lake.mirror() == Mirrored(1)
    rows = expected(45, 30)
    assert lake.rows() == rows
    for name, read in ENGINES.items():
        assert read(lake.folder) == rows, name
    table = DeltaTable(lake.folder)
    assert table.metadata().partition_columns == []
    assert (table.protocol().min_reader_version, table.protocol().reader_features) == (1, None)
    assert all(path.startswith("_data/") for path in _paths(table))


def _paths(table: DeltaTable) -> list[str]:
    return table.get_add_actions().column("path").to_pylist()


def test_readers_skip_files_by_their_statistics(lake: Scene) -> None:
    for _ in range(3):
        lake.append(10)
    lake.append(10, partition=1)
    lake.mirror()
    table = DeltaTable(lake.folder)
    stats = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert sorted((row["min._stream_partition"], row["min._offset"], row["max._offset"]) for row in stats) == [
        (0, 0, 9),
        (0, 10, 19),
        (0, 20, 29),
        (1, 0, 9),
    ]
    assert {row["num_records"] for row in stats} == {10}
    with duckdb.connect() as connection:
        import_extension("delta")
        connection.load_extension("delta")
        query = f"FROM delta_scan('{lake.folder}') WHERE _stream_partition = 0 AND _offset >= 25"
        assert len(connection.execute(f"SELECT _offset {query}").fetchall()) == 5
        plan = str(connection.execute(f"EXPLAIN ANALYZE SELECT _offset {query}").fetchall())
    assert "Total Files Read: 1" in " ".join(plan.split()), plan


def test_a_crash_between_the_two_commits_is_finished_by_the_next_run(lake: Scene) -> None:
    class Power(BaseException):
        pass

    class Cut:
        """The power goes when the table is committed and its mirror is not."""

        def __init__(self, log: DeltaRs) -> None:
            self._log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

        async def commit(self, *_: object) -> None:
            raise Power

    lake.append(3)
    lake.mirror()
    lake.append(4)
    with pytest.raises(Power):
        lake.mirror(lake.mirrors(Cut(lake.delta)))
    assert delta_rs(lake.folder) == expected(3)
    assert lake.mirror() == Mirrored(1)
    assert delta_rs(lake.folder) == lake.rows() == expected(7)
    assert lake.mirror() == Mirrored(0)


def test_a_log_takes_one_step_from_each_version(lake: Scene) -> None:
    """Two processes read the same version; the second to commit is refused, and so is a second creation."""
    lake.append(3)
    lake.mirror()
    location, rival = lake.view.location, DeltaRs({})
    try:
        shown, seen = lake.run(lake.delta.read(location)), lake.run(rival.read(location))
        assert shown == seen
        assert shown is not None
        assert shown.snapshot_id == lake.view.snapshot_id
        step = MirrorStep([], [], [], 7, shown.metadata_version + 1, 0)
        lake.run(rival.commit(location, shown, step))
        with pytest.raises(Conflict):
            lake.run(lake.delta.commit(location, shown, MirrorStep([], sorted(shown.paths), [], 8, 9, 0)))
        with pytest.raises(Conflict):
            lake.run(rival.create(location, "orders", shown.columns))
        assert delta_rs(lake.folder) == expected(3)
    finally:
        rival.close()


def test_what_others_write_to_the_mirror_is_undone(lake: Scene) -> None:
    lake.append(3)
    lake.mirror()
    table = DeltaTable(lake.folder)
    write_deltalake(table, table.to_pyarrow_table(), mode="append")
    table.delete("_offset = 1")
    lake.append(1)
    assert lake.mirror().failures == ()
    assert delta_rs(lake.folder) == lake.rows() == expected(4)


def test_a_mirror_that_may_not_remove_says_so(lake: Scene) -> None:
    lake.append(3)
    lake.mirror()
    DeltaTable(lake.folder).alter.set_table_properties({"delta.appendOnly": "true"})
    lake.append(2)
    assert lake.mirror() == Mirrored(1)
    lake.replace()
    [(topic, error)] = lake.mirror().failures
    assert topic == "orders"
    assert "append" in str(error)
    assert "delete its folder _delta_log" in str(error)
    for path in (lake.folder / "_delta_log").iterdir():
        path.unlink()
    assert lake.mirror() == Mirrored(1)
    assert delta_rs(lake.folder) == lake.rows()


def test_a_mirror_with_features_that_are_not_its_own_stops_and_says_so(lake: Scene) -> None:
    lake.append(3)
    lake.mirror()
    shown = lake.view
    feature = TableFeatures.DeletionVectors
    DeltaTable(lake.folder).alter.add_feature([feature], allow_protocol_versions_increase=True)
    lake.replace()
    [(topic, error)] = lake.mirror().failures
    assert topic == "orders"
    assert "features that it is not written with (deletionVectors)" in str(error)
    with lake.engine() as catalog:
        assert catalog.load_table("default.orders").metadata.refs[TAG].snapshot_id == shown.snapshot_id
    for path in (lake.folder / "_delta_log").iterdir():
        path.unlink()
    assert lake.mirror() == Mirrored(1)
    assert delta_rs(lake.folder) == lake.rows()


def test_a_lost_log_begins_anew(lake: Scene) -> None:
    lake.append(3)
    lake.mirror()
    for path in (lake.folder / "_delta_log").iterdir():
        path.unlink()
    assert lake.mirror() == Mirrored(1)
    assert delta_rs(lake.folder) == expected(3)


def test_new_columns_come_and_renamed_ones_stop_the_mirror(lake: Scene) -> None:
    lake.append(3)
    lake.mirror()
    with lake.engine() as catalog:
        table = catalog.load_table("default.orders")
        with table.update_schema() as update:
            update.add_column("note", StringType())
            update.add_column("seen", TimestampType())
        assert lake.mirror().failures == ()
        lake.append(2)
        assert lake.mirror() == Mirrored(1)
        assert DeltaTable(lake.folder).to_pyarrow_table().column("note").null_count == 5
        assert delta_rs(lake.folder) == expected(5)
        table.refresh()
        with table.update_schema() as update:
            update.rename_column("note", "remark")
    lake.append(1)
    mirrors = lake.mirrors()
    [(topic, error)] = lake.mirror(mirrors).failures
    assert topic == "orders"
    assert isinstance(error, StorageError)
    assert "renamed" in str(error)
    assert delta_rs(lake.folder) == expected(5)


def test_the_snapshot_of_a_mirror_that_cannot_follow_is_held(lake: Scene) -> None:
    lake.append(3)
    lake.mirror()
    first = lake.view
    side = IcebergSide(lake.tables.commits)
    lake.append(1)
    lake.run(side.hold(lake.topic.topic_id, first.snapshot_id))
    lake.run(side.hold(lake.topic.topic_id, first.snapshot_id))
    with lake.engine() as catalog:
        table = catalog.load_table("default.orders")
        assert table.metadata.refs[TAG].snapshot_id == first.snapshot_id
        table.maintenance.expire_snapshots().by_ids([]).commit()
        with pytest.raises(ValueError, match="protected"):
            table.maintenance.expire_snapshots().by_id(first.snapshot_id)
    assert lake.mirror() == Mirrored(1)
    with lake.engine() as catalog:
        assert TAG not in catalog.load_table("default.orders").metadata.refs


def test_a_deleted_topic_leaves_both_tables(lake: Scene) -> None:
    lake.append(3)
    lake.mirror()
    folder = lake.folder
    lake.run(lake.topics.delete(lake.topic.topic_id))
    name = lake.run(lake.tables.detach(lake.topic.topic_id))
    assert lake.mirror() == Mirrored()
    assert delta_rs(folder) == expected(3)
    with lake.engine() as catalog:
        [table] = [found for found in catalog.list_tables("default") if str(name).endswith(found[-1])]
        assert tuples(catalog.load_table(table).scan().to_arrow()) == expected(3)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"full": True},
        {"retention_hours": 0, "enforce_retention_duration": False},
        {"retention_hours": 0, "enforce_retention_duration": False, "full": True},
    ],
    ids=["default", "full", "forced", "forced full"],
)
def test_vacuum_of_delta_rs_breaks_neither_table(lake: Scene, options: dict[str, Any]) -> None:
    """A file that only old snapshots of Iceberg name, one that Delta does not name yet, one that no table names yet."""
    before = _replaced(lake)
    lake.append(1)
    fresh = lake.folder / "_data" / "tile.parquet"
    fresh.write_bytes(b"a worker is about to commit this")
    age(lake.folder)
    DeltaTable(lake.folder).vacuum(dry_run=False, **options)
    assert fresh.exists()
    assert lake.rows() == expected(6)
    assert lake.rows(before) == expected(5)
    assert delta_rs(lake.folder) == expected(5)
    assert lake.mirror() == Mirrored(1)
    assert delta_rs(lake.folder) == expected(6)


def _replaced(lake: Scene) -> int:
    """Two files, mirrored, then one in their place, mirrored; the snapshot with the two."""
    lake.append(2)
    before = lake.append(3)
    lake.mirror()
    lake.replace()
    assert lake.mirror() == Mirrored(1)
    assert len(_paths(DeltaTable(lake.folder))) == len(lake.view.files)
    assert before.snapshot_id is not None
    return before.snapshot_id


def test_the_log_stays_bounded(lake: Scene) -> None:
    """A checkpoint now and then; what is behind one and old goes."""
    log = lake.folder / "_delta_log"
    lake.append(1)
    mirrors = lake.mirrors()
    lake.mirror(mirrors)
    for turn in range(2):
        shown = lake.run(lake.delta.read(lake.view.location))
        assert shown is not None
        for number in range(52):
            step = MirrorStep([], [], [], 1, shown.metadata_version, number)
            lake.run(lake.delta.commit(lake.view.location, shown, step))
            shown = lake.run(lake.delta.read(lake.view.location))
            assert shown is not None
        assert (log / "_last_checkpoint").exists()
        if turn == 0:
            age(log)
    assert len(list(log.glob("*.json"))) < 60
    lake.append(1)
    lake.mirror(mirrors)
    assert delta_rs(lake.folder) == expected(2)


async def test_on_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline's own files, moved from the WAL and mirrored, all on S3."""

    async def scenario(delta: DeltaRs) -> tuple[str, Rows]:
        bucket = objects.open("s3://lake")
        world = MemoryWorld(objects=bucket)
        world.catalog = PyIcebergTables(world.store, bucket.url, system(), io_properties=io_properties(os.environ))
        topics = Topics(world.store, system())
        topic = await topics.create("orders", 2, CONFIGS)
        world.topics[topic.topic_id] = topic
        mirrors = Mirrors(
            world.catalog, IcebergSide(world.catalog.commits), delta, topics, system(), PipelineSettings(backoff_ms=0)
        )
        producer = Producer(world, "one")
        try:
            for number in range(3):
                values = {each: [b"%d-%d" % (number, n) for n in range(20)] for each in topic.each_partition()}
                await producer.append(values)
                await world.drain()
                assert await mirrors.mirror() == Mirrored(1)
            assert await mirrors.mirror() == Mirrored(0)
            rows = [(row.partition, row.offset, row.value) for row in await world.rows()]
            return (await world.catalog.load(topic.topic_id)).location, rows
        finally:
            await world.catalog.close()

    with s3_server() as address:
        make_bucket(address, "lake")
        for name, value in environment(address).items():
            monkeypatch.setenv(name, value)
        with open_delta() as delta:
            location, rows = await scenario(delta)
        assert len(rows) == 120
        options = {"AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true"}
        assert tuples(DeltaTable(location, storage_options=options).to_pyarrow_table()) == rows
