"""The REST catalog as the protocol has it: status codes, error bodies, and what a stream's table refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.tables.files import Door, open_door

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "n", "type": "long", "required": False}],
}
JSON = {"Content-Type": "application/json"}
V9_TABLE = {"name": "v9", "schema": SCHEMA, "properties": {"format-version": "9"}}
WIDE_TABLE = {
    "name": "t",
    "schema": {"type": "struct", "fields": [{"id": 1, "name": "n", "type": "decimal(99,2)", "required": False}]},
}
ODD_SPEC = {"spec-id": 1, "fields": [{"source-id": 1, "transform": "truncate[-3]", "name": "p", "field-id": 1000}]}


@pytest.fixture(scope="module")
def shared_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with open_door(tmp_path_factory.mktemp("door")) as door:
        yield door


@pytest.fixture
def http(shared_door: Door) -> Iterator[httpx.Client]:
    """A namespace of its own for each test would do; names below are distinct instead."""
    with httpx.Client(base_url=f"{shared_door.uri}/v1", timeout=30) as client:
        yield client


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with open_door(tmp_path) as opened:
        yield opened


def error_of(response: httpx.Response) -> tuple[int, str]:
    body = response.json()["error"]
    assert body["code"] == response.status_code
    assert body["message"]
    return response.status_code, body["type"]


def test_config_names_what_is_served(http: httpx.Client) -> None:
    body = http.get("/config", params={"warehouse": "anything"}).json()
    assert body["defaults"] == body["overrides"] == {}
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}" in body["endpoints"]


def test_a_namespace_lives_and_dies(http: httpx.Client, shared_door: Door) -> None:
    assert error_of(http.get("/namespaces/one")) == (404, "NoSuchNamespaceException")
    assert http.head("/namespaces/one").status_code == 404
    made = http.post("/namespaces", json={"namespace": ["one"], "properties": {"owner": "me"}})
    place = f"file://{shared_door.folder}/bucket/warehouse/one"
    properties = {"owner": "me", "location": place}
    assert (made.status_code, made.json()) == (200, {"namespace": ["one"], "properties": properties})
    assert error_of(http.post("/namespaces", json={"namespace": ["one"]})) == (409, "AlreadyExistsException")
    assert http.head("/namespaces/one").status_code == 204
    assert http.get("/namespaces/one").json()["properties"] == properties
    assert ["one"] in http.get("/namespaces").json()["namespaces"]
    changed = http.post("/namespaces/one/properties", json={"updates": {"a": "1"}, "removals": ["owner", "nothing"]})
    assert changed.json() == {"updated": ["a"], "removed": ["owner"], "missing": ["nothing"]}
    assert http.get("/namespaces/one").json()["properties"] == {"a": "1", "location": place}
    moved = {"updates": {"location": f"{place}/apart"}}
    assert http.post("/namespaces/one/properties", json=moved).status_code == 200
    assert http.get("/namespaces/one").json()["properties"]["location"] == f"{place}/apart"
    outside = {"updates": {"location": "file:///elsewhere"}}
    assert error_of(http.post("/namespaces/one/properties", json=outside)) == (403, "ForbiddenException")
    both = http.post("/namespaces/one/properties", json={"updates": {"a": "1"}, "removals": ["a"]})
    assert both.status_code == 422
    assert http.delete("/namespaces/one").status_code == 204
    assert error_of(http.delete("/namespaces/one")) == (404, "NoSuchNamespaceException")


def test_namespaces_have_levels(http: httpx.Client) -> None:
    assert error_of(http.post("/namespaces", json={"namespace": ["up", "down"]})) == (404, "NoSuchNamespaceException")
    http.post("/namespaces", json={"namespace": ["up"]})
    http.post("/namespaces", json={"namespace": ["upper"]})
    http.post("/namespaces", json={"namespace": ["up", "down"]})
    assert http.get("/namespaces", params={"parent": "up"}).json() == {"namespaces": [["up", "down"]]}
    assert http.get("/namespaces/up%1Fdown").json()["namespace"] == ["up", "down"]
    http.post("/namespaces/up%1Fdown/tables", json={"name": "t", "schema": SCHEMA})
    assert http.get("/namespaces/up/tables").json() == {"identifiers": []}
    inside = http.get("/namespaces/up%1Fdown/tables").json()["identifiers"]
    assert inside == [{"namespace": ["up", "down"], "name": "t"}]
    assert error_of(http.delete("/namespaces/up")) == (409, "NamespaceNotEmptyException")
    assert error_of(http.delete("/namespaces/up%1Fdown")) == (409, "NamespaceNotEmptyException")


def test_a_table_lives_and_dies(http: httpx.Client) -> None:
    http.post("/namespaces", json={"namespace": ["two"]})
    tables = "/namespaces/two/tables"
    assert error_of(http.get(f"{tables}/t")) == (404, "NoSuchTableException")
    assert http.head(f"{tables}/t").status_code == 404
    assert error_of(http.post("/namespaces/none/tables", json={"name": "t", "schema": SCHEMA}))[0] == 404
    made = http.post(tables, json={"name": "t", "schema": SCHEMA, "properties": {"p": "1"}})
    assert made.status_code == 200
    assert made.json()["metadata"]["properties"]["p"] == "1"
    assert Path(made.json()["metadata-location"].removeprefix("file://")).exists()
    assert error_of(http.post(tables, json={"name": "t", "schema": SCHEMA})) == (409, "AlreadyExistsException")
    assert http.head(f"{tables}/t").status_code == 204
    assert http.get(f"{tables}/t").json() == made.json()
    assert http.post(f"{tables}/t/metrics", json={"report-type": "scan-report"}).status_code == 204
    renamed = {"source": {"namespace": ["two"], "name": "t"}, "destination": {"namespace": ["two"], "name": "u"}}
    assert http.post("/tables/rename", json=renamed).status_code == 204
    assert error_of(http.post("/tables/rename", json=renamed)) == (404, "NoSuchTableException")
    assert http.get(f"{tables}/u").json()["metadata"]["table-uuid"] == made.json()["metadata"]["table-uuid"]
    assert http.delete(f"{tables}/u").status_code == 204
    assert error_of(http.delete(f"{tables}/u")) == (404, "NoSuchTableException")


def test_a_commit_checks_its_requirements(http: httpx.Client) -> None:
    http.post("/namespaces", json={"namespace": ["three"]})
    made = http.post("/namespaces/three/tables", json={"name": "t", "schema": SCHEMA}).json()
    table = "/namespaces/three/tables/t"
    update = {"action": "set-properties", "updates": {"a": "1"}}
    mine = {"type": "assert-table-uuid", "uuid": made["metadata"]["table-uuid"]}
    other = {"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}
    refused = http.post(table, json={"requirements": [other], "updates": [update]})
    assert error_of(refused) == (409, "CommitFailedException")
    assert http.get(table).json()["metadata-location"] == made["metadata-location"]
    done = http.post(table, json={"requirements": [mine], "updates": [update]}).json()
    assert done["metadata"]["properties"]["a"] == "1"
    assert done["metadata-location"] != made["metadata-location"]
    absent = {"action": "remove-properties", "removals": ["a", "never-there"]}
    assert "a" not in http.post(table, json={"updates": [absent]}).json()["metadata"]["properties"]
    gone = http.post("/namespaces/three/tables/none", json={"requirements": [mine], "updates": [update]})
    assert error_of(gone) == (404, "NoSuchTableException")


def test_a_staged_table_is_made_by_its_commit(http: httpx.Client) -> None:
    http.post("/namespaces", json={"namespace": ["four"]})
    table = "/namespaces/four/tables/t"
    staged = http.post("/namespaces/four/tables", json={"name": "t", "schema": SCHEMA, "stage-create": True}).json()
    assert "metadata-location" not in staged
    assert http.head(table).status_code == 404
    metadata = staged["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "set-properties", "updates": {"a": "1"}},
    ]
    commit = {"requirements": [{"type": "assert-create"}], "updates": updates}
    made = http.post(table, json=commit)
    assert made.status_code == 200, made.text
    assert made.json()["metadata"]["table-uuid"] == metadata["table-uuid"]
    assert http.get(table).json()["metadata"]["location"] == metadata["location"]
    assert error_of(http.post(table, json=commit))[0] == 409


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/namespaces", b"{"),
        ("/namespaces", b'{"namespace": "text"}'),
        ("/namespaces", b'{"namespace": []}'),
        ("/namespaces", b'{"namespace": [""]}'),
        ("/namespaces", b'{"namespace": ["a\\u001eb"]}'),
        ("/namespaces/five/tables", b'{"name": "t"}'),
        ("/namespaces/five/tables", b'{"name": "t", "schema": {"type": "struct", "fields": [{"id": 1}]}}'),
        ("/namespaces/five/tables", json.dumps(V9_TABLE).encode()),
        ("/namespaces/five/tables", json.dumps(WIDE_TABLE).encode()),
        ("/namespaces/five/tables/t", b'{"updates": [{"action": "explode"}]}'),
        ("/namespaces/five/tables/t", b'{"updates": [{"action": "set-statistics"}]}'),
        ("/namespaces/five/tables/t", json.dumps({"updates": [{"action": "add-spec", "spec": ODD_SPEC}]}).encode()),
        ("/namespaces/five/tables/t", b'{"updates": [{"action": "set-current-schema", "schema-id": 99}]}'),
        ("/namespaces/five/tables/t", b'{"requirements": [{"type": "assert-magic"}]}'),
        ("/tables/rename", b'{"source": {}}'),
    ],
)
def test_what_is_not_understood_is_a_bad_request(http: httpx.Client, path: str, body: bytes) -> None:
    http.post("/namespaces", json={"namespace": ["five"]})
    http.post("/namespaces/five/tables", json={"name": "t", "schema": SCHEMA})
    before = http.get("/namespaces/five/tables/t").json()
    assert error_of(http.post(path, content=body, headers=JSON)) == (400, "BadRequestException")
    assert http.get("/namespaces/five/tables/t").json() == before


def test_unknown_paths_and_methods_have_the_error_body_too(http: httpx.Client) -> None:
    assert error_of(http.get("/views")) == (404, "NotFoundException")
    assert error_of(http.put("/namespaces", json={})) == (405, "UnsupportedOperationException")


def test_health_and_metrics(shared_door: Door) -> None:
    root = shared_door.uri.removesuffix("/iceberg")
    assert httpx.get(f"{root}/health").json() == {"status": "ok"}
    httpx.get(f"{shared_door.uri}/v1/namespaces/none-of-these")
    httpx.get(f"{root}/no/such/path")
    text = httpx.get(f"{root}/metrics").text
    assert 'lakestream_http_requests_total{method="GET",route="load_namespace",status="404"}' in text
    assert 'route="unmatched",status="404"' in text
    assert "none-of-these" not in text


def stream_updates(door: Door) -> dict[str, tuple[list[dict[str, Any]], str]]:
    """Changes that the table of a living topic must never have, and a word of the sentence that says so."""
    metadata = httpx.get(f"{door.uri}/v1/namespaces/default/tables/orders").json()["metadata"]
    narrower = {**metadata["schemas"][0], "schema-id": 1}
    narrower["fields"] = [field for field in narrower["fields"] if field["name"] != "_crc"]
    renamed = {**metadata["schemas"][0], "schema-id": 1}
    renamed["fields"] = [{**field, "name": field["name"].replace("_value", "v")} for field in renamed["fields"]]
    current = {"action": "set-current-schema", "schema-id": -1}
    properties = "set-properties"
    return {
        "falls": ([{"action": properties, "updates": {"lakestream.frontier": "2"}}], "fall"),
        "shrinks": ([{"action": properties, "updates": {"lakestream.frontier": ""}}], "fall"),
        "nonsense": ([{"action": properties, "updates": {"lakestream.frontier": "many"}}], "offsets"),
        "rises alone": ([{"action": properties, "updates": {"lakestream.frontier": "9"}}], "new snapshot"),
        "removed": ([{"action": "remove-properties", "removals": ["lakestream.frontier"]}], "cannot be removed"),
        "unbound": ([{"action": "remove-properties", "removals": ["lakestream.topic-id"]}], "topic-id"),
        "rebound": ([{"action": properties, "updates": {"lakestream.topic-id": "x"}}], "topic-id"),
        "uuid": ([{"action": "assign-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}], "UUID"),
        "moved": ([{"action": "set-location", "location": "file:///elsewhere"}], "location"),
        "no main": ([{"action": "remove-snapshot-ref", "ref-name": "main"}], "main"),
        "no column": ([{"action": "add-schema", "schema": narrower}, current], "_crc"),
        "other name": ([{"action": "add-schema", "schema": renamed}, current], "_value"),
        "no spec": ([{"action": "remove-partition-specs", "spec-ids": [0]}], "spec 0"),
    }


def test_a_streams_table_refuses_what_would_break_its_stream(door: Door) -> None:
    door.create()
    door.append(3)
    before = door.load()
    table = f"{door.uri}/v1/namespaces/default/tables/orders"
    for case, (updates, word) in stream_updates(door).items():
        response = httpx.post(table, json={"updates": updates})
        assert error_of(response) == (403, "ForbiddenException"), case
        assert word in response.json()["error"]["message"], case
    assert error_of(httpx.delete(table)) == (403, "ForbiddenException")
    rename = {
        "source": {"namespace": ["default"], "name": "orders"},
        "destination": {"namespace": ["default"], "name": "x"},
    }
    assert error_of(httpx.post(f"{door.uri}/v1/tables/rename", json=rename)) == (403, "ForbiddenException")
    assert door.load() == before


def test_a_streams_table_accepts_what_an_owner_may_do(door: Door) -> None:
    door.create()
    first, second = door.append(3), door.append(2)
    table = f"{door.uri}/v1/namespaces/default/tables/orders"
    schema = httpx.get(table).json()["metadata"]["schemas"][0]
    wider = {**schema, "schema-id": 1}
    wider["fields"] = [*schema["fields"], {"id": 100, "name": "mine", "type": "string", "required": False}]
    main = {"ref-name": "main", "type": "branch"}
    for updates in (
        [{"action": "set-properties", "updates": {"comment": "mine", "lakestream.frontier": "5"}}],
        [{"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": -1}],
        [{"action": "set-snapshot-ref", "ref-name": "kept", "type": "tag", "snapshot-id": first.snapshot_id}],
        [{"action": "set-snapshot-ref", **main, "snapshot-id": first.snapshot_id}],
    ):
        response = httpx.post(table, json={"updates": updates})
        assert response.status_code == 200, response.text
    rolled_back = door.load()
    assert rolled_back.files == first.files
    assert rolled_back.frontier == second.frontier == (5,)
    after = door.append(1)
    assert (len(after.files), after.frontier) == (2, (6,))


def test_a_detached_table_is_its_owners(door: Door) -> None:
    door.create()
    view = door.append(3)
    door.detach()
    table = f"{door.uri}/v1/namespaces/default/tables/orders__11111111"
    removal = [{"action": "remove-properties", "removals": ["lakestream.frontier"]}]
    assert httpx.post(table, json={"updates": removal}).status_code == 200
    assert httpx.delete(table, params={"purgeRequested": "true"}).status_code == 204
    folder = Path(view.location.removeprefix("file://"))
    assert [path for path in folder.rglob("*") if path.is_file()] == []
