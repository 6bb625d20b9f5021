"""Commits to several tables at once through the door: all or none, also when the store stops answering in between."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.tables.files import Door, catalog_of, open_door

from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.errors import Unavailable
from lakestream.http import create_app
from lakestream.metadata.store import Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import Runtime, system

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "n", "type": "long", "required": False}]}
NAMES = ("a", "b", "c")
COMMIT = "/transactions/commit"
TABLES = "/namespaces/many/tables"


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with open_door(tmp_path) as opened:
        yield opened


@pytest.fixture
def http(door: Door) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{door.uri}/v1", timeout=60) as client:
        client.post("/namespaces", json={"namespace": ["many"]})
        for name in NAMES:
            client.post(TABLES, json={"name": name, "schema": SCHEMA})
        yield client


def part(name: str, value: str, *requirements: dict[str, Any], space: str = "many") -> dict[str, Any]:
    update = {"action": "set-properties", "updates": {"at": value}}
    return {
        "identifier": {"namespace": [space], "name": name},
        "requirements": list(requirements),
        "updates": [update],
    }


def values(http: httpx.Client) -> list[str | None]:
    return [http.get(f"{TABLES}/{name}").json()["metadata"]["properties"].get("at") for name in NAMES]


def files(door: Door) -> int:
    return len(list(door.folder.rglob("*.metadata.json")))


def test_all_tables_change_or_none(door: Door, http: httpx.Client) -> None:
    done = http.post(COMMIT, json={"table-changes": [part(name, "1") for name in NAMES]})
    assert (done.status_code, values(http)) == (204, ["1"] * 3)
    stored = files(door)
    other = {"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}
    created = {"type": "assert-create"}
    for changes, status in (
        ([part("a", "2"), part("b", "2", other)], 409),
        ([part("a", "2"), part("none", "2")], 404),
        ([part("a", "2"), part("a", "3")], 400),
        ([part("a", "2"), part("new", "2", created)], 400),
        ([part("a", "2"), {**part("b", "2"), "updates": [{"action": "explode"}]}], 400),
        ([], 400),
    ):
        refused = http.post(COMMIT, json={"table-changes": changes})
        assert refused.status_code == status, refused.text
    assert values(http) == ["1"] * 3
    assert files(door) == stored, "what was written for nothing is taken away again"


def test_a_streams_table_keeps_its_rules_among_others(door: Door, http: httpx.Client) -> None:
    door.create()
    door.append(3)
    falls = {**part("orders", "1", space="default")}
    falls["updates"] = [{"action": "set-properties", "updates": {"lakestream.frontier": "1"}}]
    refused = http.post(COMMIT, json={"table-changes": [part("a", "1"), falls]})
    assert (refused.status_code, values(http)[0]) == (403, None)
    done = http.post(COMMIT, json={"table-changes": [part("a", "1"), part("orders", "1", space="default")]})
    assert (done.status_code, values(http)[0]) == (204, "1")
    assert door.append(2).frontier == (5,)
    assert http.get("/namespaces/default/tables/orders").json()["metadata"]["properties"]["at"] == "1"


def test_rivals_take_turns(http: httpx.Client) -> None:
    """Each commit either changes all three or says that it lost; afterwards the three are equal."""

    def work(number: int) -> int:
        order = NAMES if number % 2 else NAMES[::-1]
        changes = {"table-changes": [part(name, str(number)) for name in order]}
        return http.post(COMMIT, json=changes).status_code

    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(work, range(24)))
    assert set(statuses) <= {204, 409}
    assert 204 in statuses
    assert len(set(values(http))) == 1
    assert values(http)[0] is not None


class Stopping(MemoryStore):
    """Answers no more from the n-th transaction on, which is applied or not."""

    left = 10**9
    applies = False

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.applies):
            raise Unavailable("no answer")
        outcomes = await super().transact(transactions)
        if self.left == 0:
            raise Unavailable("no answer")
        return outcomes


@pytest.mark.parametrize("applies", [False, True])
async def test_a_door_that_stops_anywhere_leaves_all_or_none(tmp_path: Path, applies: bool) -> None:

    async def value(client: httpx.AsyncClient, name: str) -> str | None:
        loaded = (await client.get(f"{TABLES}/{name}")).json()
        found: str | None = loaded["metadata"]["properties"].get("at")
        return found

    runtime, store = Runtime(system().clock, system().random), Stopping(system())
    seen = set()
    tables = PyIcebergTables(store, f"file://{tmp_path}/bucket", runtime)
    transport = httpx.ASGITransport(create_app(catalog_of(tables.engines)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost/iceberg/v1") as client:
        await client.post("/namespaces", json={"namespace": ["many"]})
        for name in NAMES:
            await client.post(TABLES, json={"name": name, "schema": SCHEMA})
        for steps in range(1, 40):
            before = [await value(client, name) for name in NAMES]
            store.left, store.applies = steps, applies
            changes = {"table-changes": [part(name, str(steps)) for name in NAMES]}
            status = (await client.post(COMMIT, json=changes)).status_code
            over, store.left = store.left > 0, 10**9
            after = [await value(client, name) for name in NAMES]
            assert after in (before, [str(steps)] * 3), f"half is visible after {steps} steps"
            assert status in ((204,) if after != before and over else (204, 504))
            seen.add((status, "all" if after != before else "none"))
            if over:
                break
        else:
            pytest.fail("a commit has more steps than were tried")
    await tables.close()
    assert {(504, "none"), (204, "all")} <= seen
