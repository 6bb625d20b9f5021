"""What our registry calls compatible beside what Apicurio does, for changes that people make."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from support.schemas.door import RegistryDoor
from support.servers.apicurio import apicurio, apicurio_archive

pytestmark = pytest.mark.slow


def avro(*fields: Any, **more: Any) -> dict[str, Any]:
    listed = [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields]
    return {"type": "record", "name": "Order", "fields": listed} | more


def thing(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"id": {"type": "integer"}}} | more


def closed(**properties: Any) -> dict[str, Any]:
    return thing(additionalProperties=False, properties={"id": {"type": "integer"}} | properties)


INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
UP_TO_5, UP_TO_9 = INTEGER | {"maximum": 5}, INTEGER | {"maximum": 9}
ID, NAME = ("id", "long"), ("name", "string")
COLORS = {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}
MORE = COLORS | {"symbols": ["RED", "GREEN", "BLUE"]}


class Case(NamedTuple):
    name: str
    kind: str
    before: Any
    after: Any


CASES = (
    Case("the same", "AVRO", avro(ID), avro(ID)),
    Case("field with default added", "AVRO", avro(ID), avro(ID, ("n", "int", 0))),
    Case("field without default added", "AVRO", avro(ID), avro(ID, NAME)),
    Case("field removed", "AVRO", avro(ID, NAME), avro(ID)),
    Case("field with default removed", "AVRO", avro(ID, ("n", "int", 0)), avro(ID)),
    Case("field renamed", "AVRO", avro(ID), avro(("number", "long"))),
    Case("fields reordered", "AVRO", avro(ID, NAME), avro(NAME, ID)),
    Case("int becomes long", "AVRO", avro(("n", "int")), avro(("n", "long"))),
    Case("long becomes int", "AVRO", avro(("n", "long")), avro(("n", "int"))),
    Case("float becomes double", "AVRO", avro(("n", "float")), avro(("n", "double"))),
    Case("string becomes bytes", "AVRO", avro(("n", "string")), avro(("n", "bytes"))),
    Case("int becomes string", "AVRO", avro(("n", "int")), avro(("n", "string"))),
    Case("becomes optional", "AVRO", avro(NAME), avro(("name", ["null", "string"]))),
    Case("no longer optional", "AVRO", avro(("name", ["null", "string"])), avro(NAME)),
    Case("union gets a branch", "AVRO", avro(("u", ["int", "string"])), avro(("u", ["int", "string", "boolean"]))),
    Case("union loses a branch", "AVRO", avro(("u", ["int", "string"])), avro(("u", ["int"]))),
    Case("enum gets a symbol", "AVRO", avro(("c", COLORS)), avro(("c", MORE))),
    Case("enum loses a symbol", "AVRO", avro(("c", MORE)), avro(("c", COLORS))),
    Case("enum with default loses one", "AVRO", avro(("c", MORE)), avro(("c", COLORS | {"default": "RED"}))),
    Case("record renamed", "AVRO", avro(ID), avro(ID, name="Other")),
    Case("record renamed with alias", "AVRO", avro(ID), avro(ID, name="Other", aliases=["Order"])),
    Case(
        "items become long",
        "AVRO",
        avro(("a", {"type": "array", "items": "int"})),
        avro(("a", {"type": "array", "items": "long"})),
    ),
    Case(
        "fixed of another size",
        "AVRO",
        avro(("f", {"type": "fixed", "name": "F", "size": 4})),
        avro(("f", {"type": "fixed", "name": "F", "size": 8})),
    ),
    Case("the same", "JSON", thing(), thing()),
    Case("property added, open", "JSON", thing(), thing(properties={"id": INTEGER, "n": TEXT})),
    Case(
        "property removed, open",
        "JSON",
        thing(properties={"id": {}, "n": TEXT}),
        thing(properties={"id": {}}),
    ),
    Case("property added, closed", "JSON", closed(), closed(n=TEXT)),
    Case("property removed, closed", "JSON", closed(n=TEXT), closed()),
    Case("becomes required", "JSON", closed(), closed() | {"required": ["id"]}),
    Case("no longer required", "JSON", closed() | {"required": ["id"]}, closed()),
    Case("required one added", "JSON", closed(), closed(n=TEXT) | {"required": ["n"]}),
    Case("integer becomes number", "JSON", closed(n=INTEGER), closed(n={"type": "number"})),
    Case("number becomes integer", "JSON", closed(n={"type": "number"}), closed(n=INTEGER)),
    Case("string becomes integer", "JSON", closed(n=TEXT), closed(n=INTEGER)),
    Case("type becomes nullable", "JSON", closed(n=TEXT), closed(n={"type": ["string", "null"]})),
    Case("enum gets a value", "JSON", closed(n={"enum": ["a"]}), closed(n={"enum": ["a", "b"]})),
    Case("enum loses a value", "JSON", closed(n={"enum": ["a", "b"]}), closed(n={"enum": ["a"]})),
    Case(
        "maximum raised",
        "JSON",
        closed(n=UP_TO_5),
        closed(n=UP_TO_9),
    ),
    Case(
        "maximum lowered",
        "JSON",
        closed(n=UP_TO_9),
        closed(n=UP_TO_5),
    ),
    Case("maximum added", "JSON", closed(n=INTEGER), closed(n=UP_TO_5)),
    Case(
        "longer allowed",
        "JSON",
        closed(n=TEXT | {"maxLength": 5}),
        closed(n=TEXT | {"maxLength": 9}),
    ),
    Case(
        "pattern changed",
        "JSON",
        closed(n=TEXT | {"pattern": "a"}),
        closed(n=TEXT | {"pattern": "b"}),
    ),
    Case("closed becomes open", "JSON", closed(), thing()),
    Case("open becomes closed", "JSON", thing(), closed()),
    Case(
        "items become number",
        "JSON",
        closed(a={"type": "array", "items": INTEGER}),
        closed(a={"type": "array", "items": {"type": "number"}}),
    ),
)
LEVELS = ("BACKWARD", "FORWARD", "FULL")


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    archive = apicurio_archive()
    if archive is None:
        pytest.skip("Apicurio (LAKESTREAM_REGISTRY_JARS) is missing: `make test-all` fetches it")
    with apicurio(archive, tmp_path_factory.mktemp("apicurio")) as address:
        yield address


async def decided(client: httpx.AsyncClient, subject: str, level: str, case: Case) -> bool:
    """What the registry says of the case."""
    body = {"schema": json.dumps(case.before), "schemaType": case.kind}
    answer = await client.post(f"/subjects/{subject}/versions", json=body)
    assert answer.status_code == 200, answer.text
    answer = await client.put(f"/config/{subject}", json={"compatibility": level})
    assert answer.status_code == 200, answer.text
    body = {"schema": json.dumps(case.after), "schemaType": case.kind}
    answer = await client.post(f"/compatibility/subjects/{subject}/versions/latest", json=body)
    assert answer.status_code == 200, answer.text
    return bool(answer.json()["is_compatible"])


async def test_decisions_are_those_of_another_registry(peer: str) -> None:
    ours = RegistryDoor().client
    differ: dict[tuple[str, str, str], bool] = {}
    said: dict[tuple[str, str], set[bool]] = {}
    async with httpx.AsyncClient(base_url=f"{peer}/apis/ccompat/v7", timeout=30) as theirs:
        for number, case in enumerate(CASES):
            for level in LEVELS:
                subject = f"s{number}-{level.lower()}"
                we, they = [await decided(client, subject, level, case) for client in (ours, theirs)]
                said.setdefault((case.kind, level), set()).add(they)
                if we != they:
                    differ[case.kind, case.name, level] = we
    assert set(map(frozenset, said.values())) == {frozenset({True, False})}, "each level takes some and refuses some"
    assert differ == {}
