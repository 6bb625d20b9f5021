"""What the registry does not take: each with the number that clients know and a sentence, and nothing is written."""

import json
from typing import Any

import pytest
from support.schemas.door import RegistryDoor, record, sent

DEEP = "[" * 5000
CASES: dict[str, tuple[Any, int, int]] = {
    "nothing": ({}, 422, 42201),
    "empty": (sent(""), 422, 42201),
    "no JSON": (sent("{"), 422, 42201),
    "no type": (sent({"type": "Unknown"}), 422, 42201),
    "a default of another type": (sent(record(("a", "int", "x"))), 422, 42201),
    "a field twice": (sent(record("a", "a")), 422, 42201),
    "nested too deeply": (sent(DEEP), 422, 42201),
    "nested too deeply, as JSON Schema": (sent(DEEP, "JSON"), 422, 42201),
    "too large": (sent('"' + "x" * (1 << 20) + '"'), 422, 42209),
    "an unknown format": (sent({"type": "string"}, "XML"), 422, 42201),
    "a JSON Schema that is none": (sent({"type": 5}, "JSON"), 422, 42201),
    "a JSON Schema that is a list": (sent([], "JSON"), 422, 42201),
    "a reference that nobody named": (sent({"$ref": "other.json"}, "JSON"), 422, 42201),
    "a reference into the network": (sent({"$ref": "http://127.0.0.1:1/x.json"}, "JSON"), 422, 42201),
    "a draft that is not known": (sent({"$schema": "http://example.org/x"}, "JSON"), 422, 42201),
    "a Protobuf file that ends": (sent('syntax = "proto3"; message A {', "PROTOBUF"), 422, 42201),
    "a Protobuf file that imports another": (sent('syntax = "proto3"; import "b.proto";', "PROTOBUF"), 422, 42201),
    "a Protobuf file that imports a secret": (sent('syntax = "proto3"; import "/etc/passwd";', "PROTOBUF"), 422, 42201),
    "Protobuf of another file type": (sent("hello", "PROTOBUF"), 422, 42201),
    "a list as text": ({"schema": ["string"]}, 422, 422),
    "a number as id": ({"schema": '"string"', "id": "seven"}, 422, 422),
    "references that are none": ({"schema": '"string"', "references": "all"}, 422, 422),
    "a body that is a list": ([], 422, 422),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_schema_that_cannot_be_is_refused_and_nothing_is_written(name: str) -> None:
    body, status, code = CASES[name]
    door = RegistryDoor()
    for path in ("/subjects/orders/versions", "/compatibility/subjects/orders/versions"):
        assert await door.code("POST", path, body) == (status, code)
    assert await door.get("/subjects", deleted="true") == []
    assert [info.key async for info in door.objects.list("lakestream/schemas")] == []
    assert await door.register("orders", record("id")) == 1


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b'{"schema": "\xff"}', b"[" * 100_000])
async def test_a_body_that_is_no_json_is_refused(data: bytes) -> None:
    door = RegistryDoor()
    for path in ("/subjects/orders/versions", "/subjects/orders", "/compatibility/subjects/orders/versions"):
        answer = await door.client.post(path, content=data)
        assert answer.status_code == answer.json()["error_code"] in (400, 422), answer.text
    for path in ("/config", "/mode/orders"):
        answer = await door.client.put(path, content=data)
        assert answer.status_code == answer.json()["error_code"] in (400, 422), answer.text


async def test_a_body_without_end_is_cut_off() -> None:
    door = RegistryDoor()
    answer = await door.client.post("/subjects/orders/versions", content=b" " * (9 << 20))
    assert (answer.status_code, answer.json()["error_code"]) == (413, 413)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/schemas/ids/77", (404, 40403)),
        ("GET", "/schemas/ids/77/schema", (404, 40403)),
        ("GET", "/schemas/ids/77/subjects", (404, 40403)),
        ("GET", "/schemas/ids/77/versions", (404, 40403)),
        ("GET", "/schemas/ids/seven", (404, 404)),
        ("GET", "/schemas/ids/99999999999999999999", (404, 404)),
        ("GET", "/schemas/guids/7", (404, 40403)),
        ("GET", "/schemas/guids/7f2c1d4e-0000-4000-8000-000000000000", (404, 40403)),
        ("GET", "/subjects/none/versions", (404, 40401)),
        ("GET", "/subjects/none/versions/1", (404, 40401)),
        ("GET", "/subjects/known/versions/7", (404, 40402)),
        ("GET", "/subjects/known/versions/0", (422, 42202)),
        ("GET", "/subjects/known/versions/first", (422, 42202)),
        ("GET", "/subjects/known/versions/7/referencedby", (404, 40402)),
        ("DELETE", "/subjects/none", (404, 40401)),
        ("DELETE", "/subjects/known/versions/7", (404, 40402)),
        ("DELETE", "/subjects/none/versions/1", (404, 40401)),
        ("GET", "/subjects?limit=many", (400, 400)),
        ("GET", "/nowhere", (404, 404)),
        ("PATCH", "/subjects", (405, 405)),
        ("GET", "/associations/resources/-/orders?resourceType=topic", (404, 40410)),
    ],
)
async def test_what_is_not_there_is_named(method: str, path: str, expected: tuple[int, int]) -> None:
    door = RegistryDoor()
    await door.register("known", record("id"))
    assert await door.code(method, path) == expected


async def test_a_schema_of_another_subject_is_not_found_in_this_one() -> None:
    door = RegistryDoor()
    await door.register("orders", record("id"))
    await door.register("items", record("name"))
    assert await door.code("POST", "/subjects/items", sent(record("id"))) == (404, 40403)
    assert await door.code("POST", "/subjects/nowhere", sent(record("id"))) == (404, 40401)
    assert await door.code("POST", "/compatibility/subjects/nowhere/versions/latest", sent(record("id"))) == (
        404,
        40401,
    )
    status, found = await door.ask("POST", "/compatibility/subjects/nowhere/versions", sent(record("id")))
    assert (status, found) == (200, {"is_compatible": True})


async def test_a_large_schema_is_taken() -> None:
    fields = [(f"field_{number:05d}", ["null", "string"], None) for number in range(9_000)]
    schema = record(*fields)
    assert 500_000 < len(json.dumps(schema)) < 1 << 20
    door = RegistryDoor()
    assert await door.register("wide", schema) == 1
    assert await door.get("/schemas/ids/1/schema") == schema
    assert await door.register("wide", record(*fields, ("more", "int", 0))) == 2
