"""A stream whose table is on a branch of a Nessie that is not the main one: it lives there, and nowhere else."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.exceptions import NoSuchTableError
from support.servers.catalogs import BUCKET, nessie_place, own_folder
from support.servers.s3 import environment
from support.worlds.topic import TABLE, ExternalWorld, external_world

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")
HALF = 6


@pytest.fixture
def town(nessie_uri: str, aws_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalWorld]:
    for name, value in environment(aws_address).items():
        monkeypatch.setenv(name, value)
    with nessie_place(nessie_uri, aws_address, BUCKET).emptied():
        branch = f"streams-{uuid4().hex}"
        made = ask(nessie_uri, "GET", "trees/main")["reference"]
        ask(nessie_uri, "POST", f"trees?name={branch}&type=BRANCH", made)
        with external_world(
            nessie_place(f"{nessie_uri}/{branch}", aws_address, own_folder()), tmp_path, monkeypatch
        ) as town:
            yield town


def ask(uri: str, method: str, path: str, body: object = None) -> dict[str, object]:
    """Nessie's own door, beside Iceberg's."""
    address = uri.removesuffix("/iceberg") + "/api/v2/" + path
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, object] = json.loads(answer.read())
        return found


async def test_a_stream_lives_on_a_branch_of_its_own(town: ExternalWorld, nessie_uri: str, aws_address: str) -> None:
    for _ in range(2):
        await town.move(HALF)
    assert town.rows() == list(range(2 * HALF))
    town.check_all()
    town.table().delete("_offset = 3")
    await town.move(HALF)
    town.check_all(without=(3,))
    town.restart_broker()
    town.check_all(without=(3,))
    assert town.rows() == [0, 1, 2, *range(4, 3 * HALF)]
    main = nessie_place(nessie_uri, aws_address, BUCKET).outsider()
    try:
        with pytest.raises(NoSuchTableError):
            main.load_table(TABLE)
    finally:
        main.close()
