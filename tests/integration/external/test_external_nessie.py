"""A stream whose table is in a real Nessie: produced, moved, read, rewritten, damaged and repaired."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from duckdb_extensions import import_extension
from support.servers.catalogs import nessie_place, own_folder
from support.servers.s3 import environment
from support.worlds.topic import TABLE, ExternalWorld, external_world, foreign_rows

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")
HALF = 6


@pytest.fixture
def town(nessie_uri: str, aws_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalWorld]:
    for name, value in environment(aws_address).items():
        monkeypatch.setenv(name, value)
    with nessie_place(nessie_uri, aws_address, own_folder()).emptied() as place:
        with external_world(place, tmp_path, monkeypatch) as made:
            yield made


async def fill(town: ExternalWorld) -> None:
    for _ in range(2):
        await town.move(HALF)


async def test_a_stream_lives_in_nessie(town: ExternalWorld) -> None:
    await fill(town)
    assert town.rows() == list(range(2 * HALF))
    assert duckdb_rows(town) == [(offset, b"v%d" % offset) for offset in range(2 * HALF)]
    town.check_all()

    # An engine deletes a row, which rewrites its file: a gap for consumers, and the next commit goes through.
    town.table().delete("_offset = 3")
    await town.move(HALF)
    assert town.rows() == [0, 1, 2, *range(4, 3 * HALF)]
    town.check_all(without=(3,))

    # Somebody appends rows that no producer sent.
    town.table().append(foreign_rows(1_000, 1_001))
    town.produce_next(HALF)
    await town.check_commits_stopped("offset 1001", "which the log has not given to the table")
    town.check_all(without=(3,))
    town.restart_broker()
    town.check_all(without=(3,))

    # Its owner takes that back.
    town.table().delete("_offset >= 1000")
    assert (await town.tick()).record_count == HALF
    assert (await town.lag())[0].error == ""
    assert town.rows() == [0, 1, 2, *range(4, 4 * HALF)]
    town.check_all(without=(3,))


async def test_a_branch_that_is_set_back_stops_commits_until_it_is_set_forward(town: ExternalWorld) -> None:
    await town.move(HALF)
    past = nessie_hash(town)
    await town.move(HALF)
    town.check_all()
    present = nessie_hash(town)
    set_branch(town, past)
    town.produce_next(HALF)
    await town.check_commits_stopped("was the table replaced or rolled back?")
    town.check_all()
    town.restart_broker()
    town.check_all()
    set_branch(town, present)
    assert (await town.tick()).record_count == HALF
    assert town.rows() == list(range(3 * HALF))
    town.check_all()


async def test_a_dropped_table_stops_commits_until_it_is_registered_again(town: ExternalWorld) -> None:
    await fill(town)
    location = town.table().metadata_location
    town.outsider.drop_table(TABLE)
    town.produce_next(HALF)
    await town.check_commits_stopped("has no table default.orders any more", location)
    town.check_all()
    town.restart_broker()
    town.check_all()
    town.outsider.register_table(TABLE, location)
    assert (await town.tick()).record_count == HALF
    assert town.rows() == list(range(3 * HALF))
    town.check_all()


def duckdb_rows(town: ExternalWorld) -> list[tuple[int, bytes]]:
    """Through Nessie, as any engine would."""
    s3 = town.place.io["s3.endpoint"].removeprefix("http://")
    with duckdb.connect() as connection:
        for extension in ("avro", "httpfs", "iceberg"):
            import_extension(extension)
            connection.load_extension(extension)
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID 'test', SECRET 'test', ENDPOINT '{s3}', URL_STYLE 'path', USE_SSL false)"
        )
        options = f"TYPE iceberg, ENDPOINT '{town.place.properties['uri']}', AUTHORIZATION_TYPE 'none'"
        connection.execute(f"ATTACH '' AS lake ({options}, ACCESS_DELEGATION_MODE 'none')")
        found = connection.execute('SELECT _offset, _value FROM lake."default".orders ORDER BY 1').fetchall()
    return [(int(offset), bytes(value)) for offset, value in found]


def nessie_hash(town: ExternalWorld) -> str:
    return str(_nessie(town, "GET", "trees/main")["reference"]["hash"])


def set_branch(town: ExternalWorld, to: str) -> None:
    body = {"type": "BRANCH", "name": "main", "hash": to}
    _nessie(town, "PUT", f"trees/main@{nessie_hash(town)}?type=BRANCH", body)


def _nessie(town: ExternalWorld, method: str, path: str, body: object = None) -> dict[str, dict[str, object]]:
    """Nessie's own door, beside Iceberg's."""
    address = town.place.properties["uri"].removesuffix("/iceberg") + "/api/v2/" + path
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, dict[str, object]] = json.loads(answer.read())
        return found
