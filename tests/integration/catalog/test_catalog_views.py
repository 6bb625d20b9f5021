"""Views, registration, pages and what a client may ask of a load, as the REST protocol has them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog
from support.tables.files import Door, catalog_of, open_door

from lakestream.http import create_app

FIELD = {"id": 1, "name": "n", "type": "long", "required": False}
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [FIELD]}
WIDER = {"type": "struct", "schema-id": 1, "fields": [FIELD, {**FIELD, "id": 2, "name": "m"}]}


@pytest.fixture(scope="module")
def shared_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with open_door(tmp_path_factory.mktemp("views")) as door:
        yield door


@pytest.fixture
def http(shared_door: Door) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{shared_door.uri}/v1", timeout=30) as client:
        yield client


def version(sql: str, *, dialect: str = "spark", schema_id: int = 0) -> dict[str, Any]:
    return {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": schema_id,
        "summary": {"engine-name": "test"},
        "default-namespace": ["v"],
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect}],
    }


def view(name: str, sql: str = "select 1", **more: Any) -> dict[str, Any]:
    return {"name": name, "schema": SCHEMA, "view-version": version(sql), "properties": {}, **more}


def replacing(sql: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"action": "add-view-version", "view-version": version(sql, **more)},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]


def error_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["type"]


def test_a_view_lives_and_dies(http: httpx.Client) -> None:
    http.post("/namespaces", json={"namespace": ["v"]})
    views = "/namespaces/v/views"
    assert error_of(http.get(f"{views}/a")) == (404, "NoSuchViewException")
    assert http.head(f"{views}/a").status_code == 404
    assert error_of(http.post("/namespaces/none/views", json=view("a"))) == (404, "NoSuchNamespaceException")
    made = http.post(views, json=view("a")).json()
    assert (made["metadata"]["current-version-id"], made["metadata"]["schemas"][0]["schema-id"]) == (1, 0)
    assert http.get(f"{views}/a").json() == made
    assert http.head(f"{views}/a").status_code == 204
    assert error_of(http.post(views, json=view("a"))) == (409, "AlreadyExistsException")
    assert http.get(views).json()["identifiers"] == [{"namespace": ["v"], "name": "a"}]
    assert error_of(http.delete("/namespaces/v")) == (409, "NamespaceNotEmptyException")
    assert http.delete(f"{views}/a").status_code == 204
    assert error_of(http.delete(f"{views}/a")) == (404, "NoSuchViewException")
    assert not Path(made["metadata-location"].removeprefix("file://")).exists()
    assert http.delete("/namespaces/v").status_code == 204


def test_a_view_is_replaced_in_versions(http: httpx.Client) -> None:
    http.post("/namespaces", json={"namespace": ["versions"]})
    path = "/namespaces/versions/views/a"
    made = http.post(
        "/namespaces/versions/views", json=view("a", properties={"version.history.num-entries": "2"})
    ).json()
    uuid = made["metadata"]["view-uuid"]
    mine = [{"type": "assert-view-uuid", "uuid": uuid}]
    other = [{"type": "assert-view-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}]
    refused = http.post(path, json={"requirements": other, "updates": replacing("select 2")})
    assert error_of(refused) == (409, "CommitFailedException")
    wider = [{"action": "add-schema", "schema": WIDER}, *replacing("select 2", schema_id=-1)]
    second = http.post(path, json={"requirements": mine, "updates": wider}).json()["metadata"]
    assert (second["current-version-id"], len(second["schemas"]), second["view-uuid"]) == (2, 2, uuid)
    again = http.post(path, json={"requirements": mine, "updates": replacing("select 1")}).json()["metadata"]
    assert (again["current-version-id"], len(again["versions"])) == (1, 2)
    assert [entry["version-id"] for entry in again["version-log"]] == [1, 2, 1]
    third = http.post(path, json={"updates": replacing("select 3")}).json()["metadata"]
    assert [each["version-id"] for each in third["versions"]] == [2, 3]
    assert [entry["version-id"] for entry in third["version-log"]] == [3]
    before = http.get(path).json()
    for updates in (
        replacing("select 4", dialect="trino"),
        replacing("select 4", schema_id=9),
        [{"action": "set-current-view-version", "view-version-id": 9}],
        [{"action": "assign-uuid", "uuid": other[0]["uuid"]}],
        [{"action": "upgrade-format-version", "format-version": 2}],
    ):
        assert http.post(path, json={"updates": updates}).status_code == 400
    assert http.get(path).json() == before
    lost = [{"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "true"}}]
    changed = http.post(path, json={"updates": [*lost, *replacing("select 4", dialect="trino")]})
    assert changed.json()["metadata"]["current-version-id"] == 4


def test_tables_and_views_share_their_names(http: httpx.Client) -> None:
    for space in ("shared", "elsewhere"):
        http.post("/namespaces", json={"namespace": [space]})
    space = "/namespaces/shared"
    table = http.post(f"{space}/tables", json={"name": "t", "schema": SCHEMA}).json()
    made = http.post(f"{space}/views", json=view("w", properties={"gc.enabled": "false"})).json()
    taken = (409, "AlreadyExistsException")
    assert error_of(http.post(f"{space}/views", json=view("t"))) == taken
    assert error_of(http.post(f"{space}/tables", json={"name": "w", "schema": SCHEMA})) == taken
    name = {"t": {"namespace": ["shared"], "name": "t"}, "w": {"namespace": ["shared"], "name": "w"}}
    assert error_of(http.post("/tables/rename", json={"source": name["t"], "destination": name["w"]})) == taken
    assert error_of(http.post("/views/rename", json={"source": name["w"], "destination": name["t"]})) == taken
    away = {"source": name["w"], "destination": {"namespace": ["elsewhere"], "name": "w"}}
    assert http.post("/views/rename", json=away).status_code == 204
    assert error_of(http.post("/views/rename", json=away)) == (404, "NoSuchViewException")
    assert http.get("/namespaces/elsewhere/views/w").json() == made
    assert http.delete("/namespaces/elsewhere/views/w").status_code == 204
    back = {"name": "w", "metadata-location": made["metadata-location"]}
    assert http.post(f"{space}/register-view", json=back).json()["metadata"] == made["metadata"]
    assert error_of(http.post(f"{space}/register-view", json=back)) == taken
    missing = {"name": "x", "metadata-location": f"{made['metadata-location']}.not"}
    assert http.post(f"{space}/register-view", json=missing).status_code == 400
    assert http.post(f"{space}/register", json=missing).status_code == 400
    location = table["metadata-location"]
    assert error_of(http.post(f"{space}/register", json={"name": "u", "metadata-location": location})) == taken
    assert http.delete(f"{space}/tables/t").status_code == 204
    registered = http.post(f"{space}/register", json={"name": "u", "metadata-location": location})
    assert registered.json()["metadata"] == table["metadata"]
    update = {"updates": [{"action": "set-properties", "updates": {"a": "1"}}]}
    assert http.post(f"{space}/tables/u", json=update).status_code == 200
    overwrite = {"name": "u", "metadata-location": location, "overwrite": True}
    assert "a" not in http.post(f"{space}/register", json=overwrite).json()["metadata"]["properties"]


def test_lists_come_in_pages(http: httpx.Client, shared_door: Door) -> None:
    http.post("/namespaces", json={"namespace": ["pages"]})
    names = [f"t{number}" for number in range(5)]
    for name in reversed(names):
        http.post("/namespaces", json={"namespace": ["pages", name]})
        http.post("/namespaces/pages/tables", json={"name": name, "schema": SCHEMA})
        http.post("/namespaces/pages/views", json=view(f"v{name}"))

    def every(path: str, key: str, **params: str) -> list[Any]:
        found, token, pages = [], "", 0
        while token is not None:
            page = http.get(path, params={"pageToken": token, "pageSize": "2", **params}).json()
            assert 1 <= len(page[key]) <= 2
            found += page[key]
            token, pages = page.get("next-page-token"), pages + 1
        assert pages == 3
        return found

    assert [each["name"] for each in every("/namespaces/pages/tables", "identifiers")] == names
    assert [each["name"] for each in every("/namespaces/pages/views", "identifiers")] == [f"v{n}" for n in names]
    assert every("/namespaces", "namespaces", parent="pages") == [["pages", name] for name in names]
    assert len(http.get("/namespaces/pages/tables").json()["identifiers"]) == 5
    first = http.get("/namespaces/pages/tables", params={"pageSize": "2"}).json()
    http.delete("/namespaces/pages/tables/t1")
    rest = http.get("/namespaces/pages/tables", params={"pageToken": first["next-page-token"]}).json()
    assert [each["name"] for each in rest["identifiers"]] == ["t2", "t3", "t4"]
    for wrong in ({"pageToken": "%%"}, {"pageSize": "0"}, {"pageSize": "many"}):
        assert error_of(http.get("/namespaces/pages/tables", params=wrong)) == (400, "BadRequestException")
    catalog = RestCatalog("pages", uri=shared_door.uri)
    assert [name for *_space, name in catalog.list_tables(("pages",))] == ["t0", "t2", "t3", "t4"]
    assert catalog.view_exists(("pages", "vt1"))


def test_what_is_known_is_not_sent_again(shared_door: Door, http: httpx.Client) -> None:
    shared_door.create()
    for _ in range(3):
        shared_door.append(1)
    table = "/namespaces/default/tables/orders"
    loaded = http.get(table)
    tag = loaded.headers["ETag"]
    assert http.get(table, headers={"If-None-Match": tag}).status_code == 304
    newest = loaded.json()["metadata"]["current-snapshot-id"]
    assert len(loaded.json()["metadata"]["snapshots"]) == 3
    lean = http.get(table, params={"snapshots": "refs"}, headers={"If-None-Match": tag})
    assert [each["snapshot-id"] for each in lean.json()["metadata"]["snapshots"]] == [newest]
    assert error_of(http.get(table, params={"snapshots": "some"})) == (400, "BadRequestException")
    shared_door.append(1)
    assert http.get(table, headers={"If-None-Match": tag}).status_code == 200


def test_keys_go_to_those_who_ask_for_them(shared_door: Door) -> None:
    shared_door.create()
    secrets = {"s3.access-key-id": "id", "s3.secret-access-key": "secret"}
    app = create_app(catalog_of(shared_door.tables.engines), table_config={"s3.region": "r"}, credentials=secrets)

    async def ask() -> tuple[Any, Any, Any, int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost/iceberg/v1") as client:
            table = "/namespaces/default/tables/orders"
            plain = (await client.get(table)).json()
            asked = (await client.get(table, headers={"X-Iceberg-Access-Delegation": "vended-credentials"})).json()
            alone = (await client.get(f"{table}/credentials")).json()
            return plain, asked, alone, (await client.get("/namespaces/default/tables/none/credentials")).status_code

    plain, asked, alone, missing = asyncio.run_coroutine_threadsafe(ask(), shared_door.loop).result(30)
    vended = [{"prefix": f"file://{shared_door.folder}/bucket", "config": secrets}]
    assert (plain["config"], "storage-credentials" in plain) == ({"s3.region": "r"}, False)
    assert (asked["config"], asked["storage-credentials"]) == ({"s3.region": "r", **secrets}, vended)
    assert (alone, missing) == ({"storage-credentials": vended}, 404)
    nothing = httpx.get(f"{shared_door.uri}/v1/namespaces/default/tables/orders/credentials").json()
    assert nothing == {"storage-credentials": []}
