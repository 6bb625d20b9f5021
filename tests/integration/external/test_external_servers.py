"""A stream whose table is in a catalog on PostgreSQL, or in a Hive Metastore: produced, moved, read, rewritten, dropped
and brought back."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from support.servers.catalogs import Place, external_place, sql_place
from support.tables.files import OTHER, write_file
from support.worlds.topic import TABLE, WAIT_S, ExternalWorld, external_world

from lakestream.errors import Unavailable
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import RAW
from lakestream.table.view import View

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")
HALF = 6
_TRIES = 6
"""Each of a catalog's threads has a connection of its own, and each is tried once in vain."""


@pytest.fixture(params=["postgres", pytest.param("hive", marks=pytest.mark.slow)])
def town(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalWorld]:
    with external_place(request.param, request, tmp_path) as place:
        with external_world(place, tmp_path, monkeypatch) as made:
            yield made


async def test_a_stream_lives_there(town: ExternalWorld) -> None:
    for _ in range(2):
        await town.move(HALF)
    assert town.rows() == list(range(2 * HALF))
    town.check_all()

    # An engine deletes a row, which rewrites its file.
    town.table().delete("_offset = 3")
    await town.move(HALF)
    assert town.rows() == [0, 1, 2, *range(4, 3 * HALF)]
    town.check_all(without=(3,))

    # Somebody drops the table, and brings it back.
    location = town.table().metadata_location
    town.outsider.drop_table(TABLE)
    town.produce_next(HALF)
    await town.check_commits_stopped("has no table default.orders any more", location)
    town.restart_broker()
    town.check_all(without=(3,))
    town.outsider.register_table(TABLE, location)
    assert (await town.tick()).record_count == HALF
    assert town.rows() == [0, 1, 2, *range(4, 4 * HALF)]
    town.check_all(without=(3,))


async def test_a_topic_goes_on_in_a_table_that_is_there_if_that_is_like_a_streams(town: ExternalWorld) -> None:
    admin = AdminClient({"bootstrap.servers": town.brokers.bootstrap})

    def make(table: str, schema: Schema) -> Table:
        town.outsider.create_namespace_if_not_exists("default")
        return town.outsider.create_table(("default", table), schema, f"{town.place.bucket_url}/made/{table}")

    def create(topic: str, table: str) -> None:
        configs = {"lakestream.table.name": table}
        admin.create_topics([NewTopic(topic, 1, config=configs)])[topic].result(WAIT_S)

    make("facts", Schema(NestedField(1, "mine", LongType())))
    with pytest.raises(KafkaException, match="table of that name is there, and its column mine is none that a stream"):
        create("sales", "facts")
    assert "sales" not in admin.list_topics(timeout=WAIT_S).topics
    create("sales", "sold")
    made = make("seen", iceberg_schema(RAW))
    create("visits", "seen")
    producer = Producer({"bootstrap.servers": town.brokers.bootstrap})
    for topic in ("sales", "visits"):
        producer.produce(topic, b"v")
    assert producer.flush(WAIT_S) == 0
    assert ((await town.tick()).failures, (await town.tick()).failures) == ((), ())
    for topic, table in (("sales", "sold"), ("visits", "seen")):
        found = town.outsider.load_table(("default", table))
        assert found.properties["lakestream.topic"] == topic
        assert found.scan().to_arrow()["_value"].to_pylist() == [b"v"]
    assert found.metadata.table_uuid == made.metadata.table_uuid
    assert town.outsider.load_table(("default", "facts")).schema().column_names == ["mine"]


async def test_connections_that_the_server_ends_cost_a_try_and_no_record(
    postgres_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sql_place(tmp_path, postgres_uri).emptied() as place:
        with external_world(place, tmp_path, monkeypatch) as town:
            await town.move(HALF)
            town.check_all()
            end_connections(postgres_uri)
            town.check_all()
            await commit_on_ended_connections(place, postgres_uri, tmp_path)


async def commit_on_ended_connections(place: Place, uri: str, folder: Path) -> None:
    tables = place.tables(MemoryStore(system()), system())
    try:
        view = await tables.create(OTHER, "others", 1)
        for start in range(0, 4 * HALF, HALF):
            end_connections(uri)
            file = write_file(folder, start, start + HALF)
            frontier = (start + HALF,)
            view = await tried(partial(tables.commit, view, add=[file], remove=[], frontier=frontier))
            assert view.frontier == frontier
            assert file.path in {live.path for live in view.files}
        # Each of the client's threads has a connection: one that was ended may be met only now.
        assert await tried(lambda: tables.load(OTHER)) == view
    finally:
        await tables.close()


async def tried(work: Callable[[], Awaitable[View]]) -> View:
    for _ in range(_TRIES - 1):
        with suppress(Unavailable):
            return await work()
    return await work()


def end_connections(uri: str) -> None:
    address = urlsplit(uri)
    connection = psycopg2.connect(host=address.hostname, port=address.port, user=address.username, dbname="postgres")
    try:
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        connection.cursor().execute(f"{ended} AND backend_type = 'client backend'")
    finally:
        connection.close()
