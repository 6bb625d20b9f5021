"""The registry's routes, one after the other: what Confluent's clients send, and what they expect."""

from typing import Any

import pytest
from support.schemas.door import RegistryDoor, record, sent

V1 = record("id")
V2 = record("id", ("note", ["null", "string"], None))
BAD = record("id", ("amount", "int"))


async def test_a_schema_is_registered_once_and_found_by_id_version_and_text() -> None:
    door = RegistryDoor()
    status, first = await door.ask("POST", "/subjects/orders-value/versions?normalize=False", sent(V1))
    assert (status, first["id"], first["version"]) == (200, 1, 1)
    assert await door.register("orders-value", V1) == 1
    spaced = {"schema": '{ "type":"record",\n "fields":[{"type": {"type":"string"}, "name":"id"}], "name":"Order"}'}
    status, found = await door.ask("POST", "/subjects/orders-value/versions", spaced)
    assert (status, found["id"]) == (200, 1), "layout is no difference"
    assert await door.register("orders-value", V2) == 2
    assert await door.register("other-value", V1) == 1, "the same schema has one id"
    text = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
    found = await door.get("/schemas/ids/1", subject="orders-value")
    assert found == {"schema": text, "guid": first["guid"]}
    assert await door.get("/schemas/ids/1/schema") == V1
    assert await door.get("/schemas/ids/1/subjects") == ["orders-value", "other-value"]
    assert await door.get("/schemas/ids/1/versions", limit=-1) == [
        {"subject": "orders-value", "version": 1},
        {"subject": "other-value", "version": 1},
    ]
    assert (await door.get(f"/schemas/guids/{first['guid']}"))["id"] == 1
    assert await door.get("/subjects") == ["orders-value", "other-value"]
    assert await door.get("/subjects", subjectPrefix="or") == ["orders-value"]
    assert await door.get("/subjects", offset=1, limit=1) == ["other-value"]
    assert await door.get("/subjects/orders-value/versions") == [1, 2]
    latest = await door.get("/subjects/orders-value/versions/latest")
    assert (latest["subject"], latest["version"], latest["id"]) == ("orders-value", 2, 2)
    assert await door.get("/subjects/orders-value/versions/-1") == latest
    assert await door.get("/subjects/orders-value/versions/1/schema") == V1
    status, looked = await door.ask("POST", "/subjects/orders-value", sent(V2))
    assert (status, looked["id"], looked["version"]) == (200, 2, 2)
    assert await door.get("/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    every = await door.get("/schemas", latestOnly="true")
    assert [(each["subject"], each["version"]) for each in every] == [("orders-value", 2), ("other-value", 1)]


async def test_subjects_have_any_name() -> None:
    door = RegistryDoor()
    for name in ("a%2Fb", "%C3%BC-value", "with%20space", "a.b_c-d"):
        await door.register(name, V1)
        assert await door.get(f"/subjects/{name}/versions") == [1]
    assert await door.get("/subjects") == ["a.b_c-d", "a/b", "with space", "ü-value"]
    for name in ("%00", ":.x", "__GLOBAL", "x" * 2000):
        assert await door.code("POST", f"/subjects/{name}/versions", sent(V1)) == (422, 42208), name


@pytest.mark.parametrize(
    ("level", "added", "removed"),
    [
        ("NONE", True, True),
        ("BACKWARD", False, True),
        ("FORWARD", True, False),
        ("FULL", False, False),
    ],
)
async def test_levels_say_which_changes_are_refused(level: str, added: bool, removed: bool) -> None:
    door = RegistryDoor()
    assert await door.ask("PUT", "/config", {"compatibility": level}) == (200, {"compatibility": level})
    for name, first, second, allowed in (("added", V1, BAD, added), ("removed", BAD, V1, removed)):
        await door.register(name, first)
        status, found = await door.ask(
            "POST", f"/compatibility/subjects/{name}/versions/latest?verbose=true", sent(second)
        )
        assert (status, found["is_compatible"], bool(found["messages"])) == (200, allowed, not allowed)
        status, found = await door.ask("POST", f"/subjects/{name}/versions", sent(second))
        assert (status, found.get("error_code")) == ((200, None) if allowed else (409, 409))


async def test_a_transitive_level_looks_at_all_versions() -> None:
    """A field is dropped, and comes back as another type: that is fine with the last version, not with the first."""
    steps = [record("id", ("x", "int", 1)), record("id"), record("id", ("x", "string", ""))]
    for level, allowed in (("BACKWARD", True), ("BACKWARD_TRANSITIVE", False), ("FULL_TRANSITIVE", False)):
        door = RegistryDoor()
        await door.ask("PUT", "/config/orders", {"compatibility": level})
        await door.register("orders", steps[0])
        await door.register("orders", steps[1])
        status, found = await door.ask("POST", "/compatibility/subjects/orders/versions", sent(steps[2]))
        assert (status, found["is_compatible"]) == (200, allowed)
        status, _ = await door.ask("POST", "/subjects/orders/versions", sent(steps[2]))
        assert (status == 200) is allowed


async def test_the_type_of_a_subject_changes_only_where_nothing_is_checked() -> None:
    door = RegistryDoor()
    await door.register("orders", V1)
    assert await door.code("POST", "/subjects/orders/versions", sent({"type": "object"}, "JSON")) == (409, 409)
    await door.ask("PUT", "/config/orders", {"compatibility": "NONE"})
    assert await door.register("orders", {"type": "object"}, "JSON") == 2
    found = await door.get("/subjects/orders/versions/2")
    assert found["schemaType"] == "JSON"


async def test_settings_are_the_subjects_own_or_their_contexts_or_global() -> None:
    door = RegistryDoor()
    assert await door.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert await door.code("GET", "/config/orders") == (404, 40408)
    assert await door.get("/config/orders", defaultToGlobal="true") == {"compatibilityLevel": "BACKWARD"}
    await door.ask("PUT", "/config", {"compatibility": "full", "normalize": True})
    await door.ask("PUT", "/config/:.staging:", {"compatibility": "NONE"})
    assert await door.get("/config") == {"compatibilityLevel": "FULL", "normalize": True}
    found = await door.get("/config/:.staging:orders", defaultToGlobal="true")
    assert found == {"compatibilityLevel": "NONE", "normalize": True}
    assert await door.ask("PUT", "/config/orders", {"compatibility": "FORWARD"}) == (200, {"compatibility": "FORWARD"})
    assert await door.get("/config/orders") == {"compatibilityLevel": "FORWARD"}
    assert await door.ask("DELETE", "/config/orders") == (200, {"compatibilityLevel": "FORWARD"})
    assert await door.code("DELETE", "/config/orders") == (404, 40401)
    assert await door.code("PUT", "/config", {"compatibility": "SIDEWAYS"}) == (422, 42203)
    assert await door.code("PUT", "/config", {}) == (422, 42203)
    assert await door.code("PUT", "/config", {"compatibility": "FULL", "alias": "x"}) == (422, 422)
    await door.ask("DELETE", "/config")
    assert await door.get("/config") == {"compatibilityLevel": "BACKWARD"}


async def test_modes_keep_writers_out_and_let_ids_in() -> None:
    door = RegistryDoor()
    await door.register("orders", V1)
    assert await door.get("/mode") == {"mode": "READWRITE"}
    assert await door.code("GET", "/mode/orders") == (404, 40409)
    await door.ask("PUT", "/mode/orders", {"mode": "READONLY"})
    for method, path in (
        ("POST", "/subjects/orders/versions"),
        ("DELETE", "/subjects/orders"),
        ("PUT", "/config/orders"),
    ):
        body = {"compatibility": "NONE"} if method == "PUT" else sent(V2)
        assert await door.code(method, path, body) == (422, 42205)
    assert await door.ask("DELETE", "/mode/orders") == (200, {"mode": "READONLY"})
    assert await door.code("DELETE", "/mode/orders") == (404, 40401)
    assert await door.code("PUT", "/mode/orders", {"mode": "SOMETIMES"}) == (422, 42204)
    await door.ask("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
    await door.ask("PUT", "/mode/orders", {"mode": "READWRITE"})
    assert await door.code("POST", "/subjects/orders/versions", sent(V2)) == (422, 42205)
    await door.ask("PUT", "/mode", {"mode": "READWRITE"})
    assert await door.code("POST", "/subjects/orders/versions", sent(V2, id=7)) == (422, 42205), "not in import mode"
    assert await door.code("PUT", "/mode/orders", {"mode": "IMPORT"}) == (422, 42205), "it has versions"
    assert (await door.ask("PUT", "/mode/orders?force=true", {"mode": "IMPORT"}))[0] == 200
    assert (await door.ask("PUT", "/mode/moved", {"mode": "IMPORT"}))[0] == 200
    assert await door.code("POST", "/subjects/moved/versions", sent(V2)) == (422, 42205), "an id is wanted"
    assert await door.code("POST", "/subjects/moved/versions", sent(V2, id=1)) == (422, 42205), "another schema has it"
    assert await door.code("POST", "/subjects/moved/versions", sent(V1, id=9)) == (422, 42207), "it has another id"
    assert await door.register("moved", V2, id=100, version=3) == 100
    assert await door.get("/subjects/moved/versions") == [3]
    assert await door.register("fresh", BAD) == 101, "ids go on above those that were given"


async def test_deleting_hides_first_and_is_for_good_then() -> None:
    door = RegistryDoor()
    for schema in (V1, V2):
        await door.register("orders", schema)
    assert await door.code("DELETE", "/subjects/orders/versions/1", permanent="true") == (404, 40407)
    assert await door.ask("DELETE", "/subjects/orders/versions/1") == (200, 1)
    assert await door.code("DELETE", "/subjects/orders/versions/1") == (404, 40406)
    assert await door.code("GET", "/subjects/orders/versions/1") == (404, 40402)
    assert (await door.get("/subjects/orders/versions/1", deleted="true"))["deleted"] is True
    assert await door.get("/subjects/orders/versions") == [2]
    assert await door.get("/subjects/orders/versions", deleted="true") == [1, 2]
    assert await door.get("/subjects/orders/versions", deletedOnly="true") == [1]
    assert await door.get("/schemas/ids/1/schema") == V1, "records still have it"
    assert await door.get("/schemas/ids/1/subjects") == []
    assert await door.get("/schemas/ids/1/subjects", deleted="true") == ["orders"]
    assert await door.code("POST", "/subjects/orders", sent(V1)) == (404, 40403)
    status, found = await door.ask("POST", "/subjects/orders?deleted=true", sent(V1))
    assert (status, found["version"]) == (200, 1)
    await door.ask("PUT", "/config/orders", {"compatibility": "NONE"})
    assert await door.register("orders", V1) == 1
    assert await door.get("/subjects/orders/versions") == [2, 3], "the same id, another version"
    assert await door.code("DELETE", "/subjects/orders", permanent="true") == (404, 40405)
    assert await door.ask("DELETE", "/subjects/orders") == (200, [2, 3])
    assert await door.code("DELETE", "/subjects/orders") == (404, 40404)
    assert await door.code("GET", "/config/orders") == (404, 40408)
    assert await door.get("/subjects") == []
    assert await door.get("/subjects", deleted="true") == ["orders"]
    assert await door.get("/subjects", deletedOnly="true") == ["orders"]
    assert await door.code("GET", "/subjects/orders/versions") == (404, 40401)
    assert await door.ask("DELETE", "/subjects/orders?permanent=true") == (200, [1, 2, 3])
    assert await door.code("DELETE", "/subjects/orders", permanent="true") == (404, 40401)
    assert await door.code("GET", "/schemas/ids/1") == (404, 40403)
    assert await door.register("orders", V1) == 3, "an id is never given again"
    assert await door.get("/subjects/orders/versions") == [1]


async def test_contexts_have_ids_of_their_own() -> None:
    door = RegistryDoor()
    await door.register("orders", V1)
    assert await door.register(":.staging:orders", V2) == 1
    assert await door.get("/contexts") == [".", ".staging"]
    assert await door.get("/schemas/ids/1/schema") == V1
    assert await door.get("/schemas/ids/1/schema", subject=":.staging:") == V2
    assert await door.get("/contexts/.staging/schemas/ids/1/schema") == V2
    assert await door.get("/contexts/.staging/subjects") == [":.staging:orders"]
    assert await door.get("/contexts/staging/subjects/orders/versions") == [1]
    assert await door.get("/subjects") == ["orders", ":.staging:orders"]
    assert await door.get("/subjects", subjectPrefix=":.staging:") == [":.staging:orders"]
    status, found = await door.ask("POST", "/contexts/.staging/subjects/items/versions", sent(V1))
    assert (status, found["id"], found["subject"]) == (200, 2, ":.staging:items")
    assert await door.code("GET", "/schemas/ids/2") == (404, 40403)


async def test_normalized_schemas_are_the_same_whatever_their_names_look_like() -> None:
    door = RegistryDoor()
    plain = {"type": "record", "name": "a.B", "fields": [{"name": "x", "type": ["null", "a.B"], "order": "ascending"}]}
    split = {"type": "record", "namespace": "a", "name": "B", "fields": [{"type": ["null", "B"], "name": "x"}]}
    assert await door.register("one", plain) != await door.register("two", split)
    ids = set()
    for name, schema in (("three", plain), ("four", split)):
        status, found = await door.ask("POST", f"/subjects/{name}/versions?normalize=true", sent(schema))
        assert status == 200
        ids.add(found["id"])
    assert len(ids) == 1
    await door.ask("PUT", "/config", {"normalize": True})
    assert {await door.register("five", plain), await door.register("six", split)} == ids


async def test_metadata_and_rules_are_part_of_a_schema() -> None:
    door = RegistryDoor()
    versions: list[dict[str, Any]] = [
        {"metadata": {"properties": {"major": "1"}}},
        {"metadata": {"properties": {"major": "2"}}, "ruleSet": {"domainRules": []}},
    ]
    ids = [await door.register("orders", V1, **each) for each in versions]
    assert ids == [1, 2]
    found = await door.get("/subjects/orders/metadata", key="major", value="1")
    assert (found["version"], found["metadata"]) == (1, versions[0]["metadata"])
    assert (await door.get("/schemas/ids/2"))["ruleSet"] == {"domainRules": []}
    assert await door.code("GET", "/subjects/orders/metadata", key="major", value="3") == (404, 40403)
