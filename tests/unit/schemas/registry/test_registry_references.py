"""Schemas that refer to others: resolved, kept from being deleted, and never in a circle."""

import pytest
from support.schemas.door import RegistryDoor, record, sent

ADDRESS = record("street", name="Address")
ORDER = record("id", ("to", "Address"))
TO_ADDRESS = [{"name": "Address", "subject": "address", "version": 1}]


async def test_an_avro_schema_uses_the_types_of_another_subject() -> None:
    door = RegistryDoor()
    assert await door.code("POST", "/subjects/orders/versions", sent(ORDER)) == (422, 42201)
    body = sent(ORDER, references=TO_ADDRESS)
    assert await door.code("POST", "/subjects/orders/versions", body) == (422, 42201), "not registered yet"
    await door.register("address", ADDRESS)
    assert await door.register("orders", ORDER, references=TO_ADDRESS) == 2
    assert (await door.get("/schemas/ids/2"))["references"] == TO_ADDRESS
    assert await door.get("/subjects/address/versions/1/referencedby") == [2]
    status, found = await door.ask("POST", "/subjects/orders", sent(ORDER, references=TO_ADDRESS))
    assert (status, found["id"]) == (200, 2)
    latest = [{"name": "Address", "subject": "address", "version": -1}]
    assert await door.register("orders", ORDER, references=latest) == 2, "the latest is version 1"
    more = record("id", ("to", "Address"), ("n", "int"))
    assert await door.code("POST", "/subjects/orders/versions", sent(more, references=TO_ADDRESS)) == (409, 409)
    await door.register("address", record("street", ("town", "string", ""), name="Address"))
    assert await door.register("orders", ORDER, references=latest) == 4, "another version is another schema"


async def test_what_others_refer_to_is_not_deleted() -> None:
    door = RegistryDoor()
    await door.register("address", ADDRESS)
    await door.register("orders", ORDER, references=TO_ADDRESS)
    assert await door.code("DELETE", "/subjects/address") == (422, 42206)
    assert await door.code("DELETE", "/subjects/address/versions/1") == (422, 42206)
    await door.ask("DELETE", "/subjects/orders")
    assert await door.get("/subjects/address/versions/1/referencedby") == []
    assert (await door.ask("DELETE", "/subjects/address"))[0] == 200
    assert await door.code("POST", "/subjects/items/versions", sent(ORDER, references=TO_ADDRESS)) == (422, 42201)


async def test_references_go_through_several_subjects() -> None:
    door = RegistryDoor()
    await door.register("town", record("name", name="Town"))
    to_town = [{"name": "Town", "subject": "town", "version": 1}]
    await door.register("address", record(("town", "Town"), name="Address"), references=to_town)
    both = record(("to", "Address"), ("seat", "Town"))
    direct = [*TO_ADDRESS, *to_town]
    assert await door.register("orders", both, references=direct) == 3
    assert await door.register("parcels", record(("to", "Address")), references=TO_ADDRESS) == 4
    latest = record(("to", "Address"), ("more", "int", 0))
    assert await door.register("parcels", latest, references=TO_ADDRESS) == 5


async def test_a_circle_of_references_is_refused() -> None:
    """A version refers only to what is there, so two can never refer to each other; by name they may seem to."""
    door = RegistryDoor()
    await door.register("a", {"type": "object"}, "JSON")
    await door.register("b", {"$ref": "a.json"}, "JSON", references=[{"name": "a.json", "subject": "a", "version": 1}])
    back = [{"name": "b.json", "subject": "b", "version": 1}]
    await door.ask("PUT", "/config/a", {"compatibility": "NONE"})
    assert await door.register("a", {"$ref": "b.json"}, "JSON", references=back) == 3
    round_again = [{"name": "a.json", "subject": "a", "version": 2}]
    assert await door.code(
        "POST", "/subjects/b/versions", sent({"$ref": "a.json"}, "JSON", references=round_again)
    ) == (422, 42201), "b → a (2) → b (1) → a (1) has two schemas of one name"
    own = [{"name": "self", "subject": "c", "version": -1}]
    assert await door.code("POST", "/subjects/c/versions", sent({"$ref": "self"}, "JSON", references=own)) == (
        422,
        42201,
    )


async def test_two_references_of_one_name_are_refused() -> None:
    door = RegistryDoor()
    await door.register("address", ADDRESS)
    body = sent(ORDER, references=TO_ADDRESS * 2)
    assert await door.code("POST", "/subjects/orders/versions", body) == (422, 42201)


async def test_a_diamond_of_references_is_resolved_once() -> None:
    """Thirty levels of two references each would be a billion steps."""
    door = RegistryDoor()
    await door.register("s0", {"type": "object"}, "JSON")
    for level in range(1, 31):
        below = [{"name": f"{side}{level - 1}", "subject": f"s{level - 1}", "version": 1} for side in "ab"]
        schema = {"allOf": [{"$ref": f"a{level - 1}"}, {"$ref": f"b{level - 1}"}], "title": str(level)}
        status, found = await door.ask("POST", f"/subjects/s{level}/versions", sent(schema, "JSON", references=below))
        assert status == 200, found


@pytest.mark.parametrize("name", ["../x.proto", "/etc/x.proto", "", "a b", "x" * 300])
async def test_the_name_of_a_protobuf_reference_is_a_plain_path(name: str) -> None:
    door = RegistryDoor()
    await door.register("a", 'syntax = "proto3"; message A {}', "PROTOBUF")
    body = sent(
        'syntax = "proto3"; message B {}', "PROTOBUF", references=[{"name": name, "subject": "a", "version": 1}]
    )
    assert await door.code("POST", "/subjects/b/versions", body) == (422, 42201)
