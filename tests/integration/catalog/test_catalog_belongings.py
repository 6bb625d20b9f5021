"""A table's file is nobody else's to delete: what clients of the HTTP door try to take from a living topic."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate, SetSnapshotRefUpdate, TableUpdate
from support.tables.files import ORDERS, Door, open_door

from lakestream.catalog.engines.tables import EngineTables, NewTable
from lakestream.catalog.staging import Change
from lakestream.errors import Conflict, TableRefused
from lakestream.metadata.names.pointers import Pointer, TableName

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "n", "type": "long", "required": False}],
}
COPY = TableName(("default",), "copy")


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with open_door(tmp_path) as opened:
        opened.create()
        opened.append(3)
        yield opened


@pytest.fixture
def http(door: Door) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{door.uri}/v1/namespaces/default", timeout=30) as client:
        yield client


def create(http: httpx.Client, name: str = "copy", **wanted: Any) -> httpx.Response:
    return http.post("/tables", json={"name": name, "schema": SCHEMA, **wanted})


def files_of(door: Door) -> set[Path]:
    return {path for path in Path(door.load().location.removeprefix("file://")).rglob("*") if path.is_file()}


def snapshot_of(http: httpx.Client, table: str, **changed: Any) -> list[dict[str, Any]]:
    """A commit's updates that bring the present snapshot of a table."""
    metadata = http.get(f"/tables/{table}").json()["metadata"]
    [snapshot] = [each for each in metadata["snapshots"] if each["snapshot-id"] == metadata["current-snapshot-id"]]
    snapshot = {**snapshot, "parent-snapshot-id": None, "sequence-number": 1, "schema-id": 0, **changed}
    main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot["snapshot-id"]}
    return [{"action": "add-snapshot", "snapshot": snapshot}, main]


def refused(response: httpx.Response, *words: str) -> str:
    assert response.status_code == 403, response.text
    message: str = response.json()["error"]["message"]
    assert all(word in message for word in words), message
    return message


def as_an_earlier_version(door: Door, name: TableName, *updates: TableUpdate) -> None:
    """A commit that nobody judged."""

    async def commit() -> None:
        commits = door.tables.commits
        current = await commits.load(await commits.pointers.resolve(name))
        assert current is not None
        await commits.commit(current, lambda _metadata, _written: Change((), updates))

    asyncio.run_coroutine_threadsafe(commit(), door.loop).result(60)


def thieve(door: Door, http: httpx.Client) -> int:
    """`copy` names the manifest list of `orders`, as it could be made to before. The snapshot's id."""
    assert create(http).status_code == 200
    add, main = snapshot_of(http, "orders")
    as_an_earlier_version(door, COPY, AddSnapshotUpdate.model_validate(add), SetSnapshotRefUpdate.model_validate(main))
    snapshot_id: int = add["snapshot"]["snapshot-id"]
    return snapshot_id


def test_a_commit_cannot_bring_the_manifest_list_of_another_table(door: Door, http: httpx.Client) -> None:
    create(http)
    before = http.get("/tables/copy").json()
    message = refused(
        http.post("/tables/copy", json={"requirements": [], "updates": snapshot_of(http, "orders")}),
        "a file belongs to one table",
    )
    assert door.load().location in message
    assert http.get("/tables/copy").json() == before


@pytest.mark.parametrize("spelling", ["{home}/../../tables/{file}", "{home}/%2e%2e/%2e%2e/tables/{file}"])
def test_no_spelling_of_a_path_helps(door: Door, http: httpx.Client, spelling: str) -> None:
    home = create(http).json()["metadata"]["location"]
    listed = snapshot_of(http, "orders")[0]["snapshot"]["manifest-list"].split("/tables/")[1]
    updates = snapshot_of(http, "orders", **{"manifest-list": spelling.format(home=home, file=listed)})
    refused(http.post("/tables/copy", json={"requirements": [], "updates": updates}), "a file belongs to one table")


def test_a_list_of_its_own_cannot_name_the_manifests_of_another(door: Door, http: httpx.Client) -> None:
    home = create(http).json()["metadata"]["location"]
    listed = snapshot_of(http, "orders")[0]["snapshot"]["manifest-list"]
    taken = f"{home}/metadata/snap-{listed.rsplit('/', 1)[-1]}"
    shutil.copy(listed.removeprefix("file://"), taken.removeprefix("file://"))
    updates = snapshot_of(http, "orders", **{"manifest-list": taken})
    refused(http.post("/tables/copy", json={"requirements": [], "updates": updates}), "a file belongs to one table")


def test_a_link_in_its_own_folder_does_not_lead_to_another(door: Door, http: httpx.Client) -> None:
    home = create(http).json()["metadata"]["location"]
    listed = Path(snapshot_of(http, "orders")[0]["snapshot"]["manifest-list"].removeprefix("file://"))
    Path(home.removeprefix("file://"), "linked").symlink_to(listed.parent)
    updates = snapshot_of(http, "orders", **{"manifest-list": f"{home}/linked/{listed.name}"})
    refused(http.post("/tables/copy", json={"requirements": [], "updates": updates}), "a file belongs to one table")


def test_a_branch_of_a_stream_brings_no_list_of_another_table(door: Door, http: httpx.Client) -> None:
    door.create(UUID(int=7), "other")
    door.append(1, topic_id=UUID(int=7))
    [add, _main] = snapshot_of(http, "other", **{"sequence-number": 2})
    refused(http.post("/tables/orders", json={"updates": [add]}), "a file belongs to one table")


def test_a_purge_deletes_nothing_outside_of_the_tables_location(door: Door, http: httpx.Client) -> None:
    thieve(door, http)
    before = files_of(door)
    home = Path(http.get("/tables/copy").json()["metadata"]["location"].removeprefix("file://"))
    assert any(path.is_file() for path in home.rglob("*"))
    assert http.delete("/tables/copy", params={"purgeRequested": "true"}).status_code == 204
    assert files_of(door) == before
    assert not any(path.is_file() for path in home.rglob("*"))


def test_expiry_deletes_nothing_outside_of_the_tables_location(door: Door, http: httpx.Client) -> None:
    snapshot_id = thieve(door, http)
    before = files_of(door)
    as_an_earlier_version(door, COPY, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [snapshot_id]}))
    assert http.get("/tables/copy").json()["metadata"]["snapshots"] == []
    assert files_of(door) == before


@pytest.mark.parametrize("suffix", ["", "/_data", "/_iceberg", "/new", "/.."])
def test_a_table_cannot_be_made_in_a_topics_folder(door: Door, http: httpx.Client, suffix: str) -> None:
    place = door.load().location + suffix
    refused(create(http, location=place), "cannot be a location")
    staged = create(http, "staged", **{"stage-create": True}).json()["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 1},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": place},
    ]
    made = http.post("/tables/staged", json={"requirements": [{"type": "assert-create"}], "updates": updates})
    refused(made, "cannot be a location")
    create(http, "mine")
    moved = http.post("/tables/mine", json={"updates": [{"action": "set-location", "location": place}]})
    refused(moved, "cannot be a location")


@pytest.mark.parametrize("name", ["t#", "t?a=b", "t#/u", "%2e%2e/tables/t", "..%2ftables/t", "a\\..\\t"])
def test_a_location_is_what_it_looks_like(door: Door, http: httpx.Client, name: str) -> None:
    refused(create(http, location=f"file://{door.folder}/bucket/warehouse/{name}"), "cannot be a location")
    relative = str(door.folder).lstrip("/")
    for spelling in (f"file:{relative}", f"file://{relative}", f"file://localhost/{relative}", relative):
        refused(create(http, location=f"{spelling}/bucket/warehouse/t"), "cannot be a location")


def test_two_tables_do_not_share_a_folder(door: Door, http: httpx.Client) -> None:
    place = f"file://{door.folder}/bucket/warehouse/mine"
    assert create(http, "mine", location=place).status_code == 200
    for other in (
        place,
        f"{place}/",
        f"{place}/inside",
        f"file:/{place.removeprefix('file:///')}",
        place.replace("/mine", "//mine"),
    ):
        refused(create(http, "other", location=other), "choose another location")
    create(http, "mover")
    moved = http.post("/tables/mover", json={"updates": [{"action": "set-location", "location": f"{place}/inside"}]})
    refused(moved, "choose another location")
    assert create(http, "outer", location=f"file://{door.folder}/bucket/warehouse/a/b").status_code == 200
    refused(create(http, "other", location=f"file://{door.folder}/bucket/warehouse/a"), "choose another location")
    Path(door.folder, "bucket/warehouse/alias").symlink_to(place.removeprefix("file://"))
    refused(create(http, "other", location=f"file://{door.folder}/bucket/warehouse/alias"), "choose another location")
    assert http.delete("/tables/mine", params={"purgeRequested": "true"}).status_code == 204
    assert create(http, "other", location=place).status_code == 200


def test_tables_of_an_earlier_version_have_their_folders_too(door: Door, http: httpx.Client) -> None:
    place = f"file://{door.folder}/bucket/warehouse/mine"
    create(http, "mine", location=place)

    async def forget() -> None:
        names = door.tables.commits.pointers.places._names
        rows = [*await names.range("place/", "place0"), *await names.range("places", "places0")]
        await names.write({}, {}, deletes=[row.key for row in rows])

    asyncio.run_coroutine_threadsafe(forget(), door.loop).result(60)
    again = EngineTables(door.tables.commits, f"file://{door.folder}/bucket")
    wanted = NewTable(TableName(("default",), "other"), Schema(), None, None, place, {})
    with pytest.raises(TableRefused, match="choose another location"):
        asyncio.run_coroutine_threadsafe(again.create(wanted), door.loop).result(60)


def test_a_listed_location_does_not_open_the_bucket(tmp_path: Path) -> None:
    with open_door(tmp_path, locations=[f"file://{tmp_path}"]) as door:
        door.create()
        with httpx.Client(base_url=f"{door.uri}/v1/namespaces/default", timeout=30) as http:
            for place in ("bucket/tables/x", "bucket/wal", "bucket", "bucket/../bucket/tables/x"):
                refused(create(http, location=f"file://{tmp_path}/{place}"), "cannot be a location")
            assert create(http, "mine", location=f"file://{tmp_path}/apart/mine").status_code == 200
    with open_door(tmp_path / "a" / "b", locations=[f"file://{tmp_path}"]) as door:
        door.create()
        with httpx.Client(base_url=f"{door.uri}/v1/namespaces/default", timeout=30) as http:
            refused(create(http, location=f"file://{tmp_path}/a"), "cannot be a location")


@pytest.mark.parametrize("name", ["write.metadata.path", "write.data.path", "write.object-storage.path"])
def test_a_table_writes_into_its_own_location_only(door: Door, http: httpx.Client, name: str) -> None:
    elsewhere = f"file://{door.folder}/elsewhere"
    refused(create(http, properties={name: elsewhere}), name, "leave it out")
    home = create(http).json()["metadata"]["location"]
    for path in (elsewhere, f"{home}/../x", f"{home}/%2e%2e/x", door.load().location):
        change = {"action": "set-properties", "updates": {name: path}}
        refused(http.post("/tables/copy", json={"updates": [change]}), name)
    change = {"action": "set-properties", "updates": {name: f"{home}/apart"}}
    assert http.post("/tables/copy", json={"updates": [change]}).status_code == 200
    assert not Path(door.folder, "elsewhere").exists()


@pytest.mark.parametrize("kind", ["register", "register-view"])
def test_registering_reads_only_what_is_below_the_warehouse(door: Door, http: httpx.Client, kind: str) -> None:
    secret = door.folder / "secret.json"
    secret.write_text('{"password": "hunter2"}')
    inside = f"file://{door.folder}/bucket/warehouse"
    linked = door.folder / "bucket/warehouse/linked.json"
    linked.parent.mkdir(parents=True, exist_ok=True)
    linked.symlink_to(secret)
    for path in (
        "/etc/passwd",
        f"file://{secret}",
        f"{inside}/../../secret.json",
        f"{inside}/linked.json",
        "http://127.0.0.1:1/x",
    ):
        message = refused(http.post(f"/{kind}", json={"name": "x", "metadata-location": path}), "is not read")
        assert "hunter2" not in message
        assert "root:" not in message
    shutil.copy(secret, linked.parent / "copied.json")
    answer = http.post(f"/{kind}", json={"name": "x", "metadata-location": f"{inside}/copied.json"})
    assert answer.status_code == 400
    assert "hunter2" not in answer.text


def test_a_topics_table_is_not_registered_beside_itself(door: Door, http: httpx.Client) -> None:
    """Metadata that names the folder of a topic, under a UUID of its own."""
    stored = Path(door.load().metadata_location.removeprefix("file://"))
    forged = door.folder / "bucket/warehouse/forged/00000-x.metadata.json"
    forged.parent.mkdir(parents=True)
    forged.write_text(stored.read_text().replace(str(ORDERS), "99999999-1111-4111-8111-111111111111"))
    answer = http.post("/register", json={"name": "x", "metadata-location": f"file://{forged}"})
    refused(answer, "cannot be a location")


def test_a_dropped_view_takes_no_file_of_another(door: Door, http: httpx.Client) -> None:
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["default"],
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    }
    made = http.post("/views", json={"name": "v", "schema": SCHEMA, "view-version": version, "properties": {}}).json()
    again = {"name": "w", "metadata-location": made["metadata-location"]}
    assert http.post("/register-view", json=again).status_code == 200
    assert http.delete("/views/w").status_code == 204
    assert http.get("/views/v").status_code == 200
    assert http.delete("/views/v").status_code == 204
    assert not Path(made["metadata-location"].removeprefix("file://")).exists()


def test_a_topic_that_takes_a_table_over_keeps_it_while_it_is_dropped(door: Door, http: httpx.Client) -> None:
    """Between the moment in which the drop found the table to be nobody's and the one in which it takes it away."""
    made = create(http).json()
    pointers = door.tables.commits.pointers
    plain = pointers.drop

    async def late(table_id: UUID, version: int | None = None) -> None:
        row = await pointers.get(table_id)
        assert row is not None
        if not row.pointer.bound:
            await pointers.swing(table_id, row.version, Pointer(row.pointer.metadata_location, bound=True))
        await plain(table_id, version)

    pointers.drop = late  # type: ignore[method-assign]
    refused(http.delete("/tables/copy", params={"purgeRequested": "true"}), "the table of a living topic")
    assert http.get("/tables/copy").status_code == 200
    assert Path(made["metadata-location"].removeprefix("file://")).exists()
    with pytest.raises(Conflict):
        asyncio.run_coroutine_threadsafe(plain(UUID(made["metadata"]["table-uuid"]), 1), door.loop).result(60)
