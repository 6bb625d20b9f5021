"""The registry's state: many doors at once, restarts, a store that fails, and a metadata store that is lost."""

import asyncio
from typing import Any

import pytest
from support.schemas.door import RegistryDoor, record, sent

from lakestream.errors import Unavailable
from lakestream.metadata.counters import cluster_id, known_cluster, restore_cluster
from lakestream.metadata.store import Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.objects.memory import MemoryObjects
from lakestream.runtime import system
from lakestream.schemas.registry.storage.kept import SCHEMAS, read_kept_schema
from lakestream.schemas.registry.storage.restoring import restore_registry
from lakestream.schemas.registry.storage.rows import SchemaId

ALL = ("", "\U0010ffff")


class FailingObjects(MemoryObjects):
    """Puts of keys that contain `failing` do not get through."""

    failing = ""

    async def put(self, key: str, parts: Any, *, overwrite: bool = False) -> None:
        if self.failing and self.failing in key:
            raise Unavailable("the bucket does not answer")
        await super().put(key, parts, overwrite=overwrite)


async def test_many_doors_give_one_schema_one_id_and_no_id_twice() -> None:
    first = RegistryDoor()
    doors = [first, first.again(), first.again()]
    schemas = [record("id", (f"f{number}", "int", 0)) for number in range(12)]
    found = await asyncio.gather(
        *(door.register(f"s{number % 5}-{number}", schema) for number, schema in enumerate(schemas) for door in doors),
        *(door.register("all-the-same", record("x")) for door in doors for _ in range(4)),
    )
    by_schema = [set(found[at * 3 : at * 3 + 3]) for at in range(12)]
    assert all(len(ids) == 1 for ids in by_schema)
    ids = [ids.pop() for ids in by_schema] + [set(found[36:]).pop()]
    assert len(set(found[36:])) == 1
    assert len(set(ids)) == 13
    for id, schema in zip(ids, schemas, strict=False):
        assert await doors[1].get(f"/schemas/ids/{id}/schema") == schema
    assert await doors[2].get("/subjects/all-the-same/versions") == [1]


async def test_versions_of_one_subject_that_race_are_all_there_or_refused() -> None:
    """Each is compatible with the first version, and no two of them with each other."""
    first = RegistryDoor()
    doors = [first, first.again()]
    await first.ask("PUT", "/config", {"compatibility": "FULL_TRANSITIVE"})
    await first.register("orders", record("id"))
    bodies = [sent(record("id", ("extra", ["null", kind], None))) for kind in ("int", "string", "boolean", "bytes")]
    answers = await asyncio.gather(
        *(door.ask("POST", "/subjects/orders/versions", body) for body in bodies for door in doors)
    )
    kinds = {bodies[at // 2]["schema"] for at, (status, _) in enumerate(answers) if status == 200}
    assert len(kinds) == 1
    assert {status for status, _ in answers} == {200, 409}
    assert await first.get("/subjects/orders/versions") == [1, 2]


async def test_what_is_deleted_while_others_refer_to_it_is_one_or_the_other() -> None:
    for _ in range(10):
        first = RegistryDoor()
        second = first.again()
        await first.register("address", record("street", name="Address"))
        body = sent(
            record("id", ("to", "Address")), references=[{"name": "Address", "subject": "address", "version": 1}]
        )
        (registered, _), (deleted, _) = await asyncio.gather(
            first.ask("POST", "/subjects/orders/versions", body), second.ask("DELETE", "/subjects/address")
        )
        assert (registered == 200) != (deleted == 200)


async def test_a_schema_that_gets_a_second_subject_while_its_first_goes_is_kept() -> None:
    for _ in range(10):
        first = RegistryDoor()
        second = first.again()
        await first.register("old", record("id"))
        await first.ask("DELETE", "/subjects/old")
        id, (status, _) = await asyncio.gather(
            second.register("new", record("id")), first.ask("DELETE", "/subjects/old?permanent=true")
        )
        assert status == 200
        assert await first.get(f"/schemas/ids/{id}/schema") == record("id")


async def test_a_bucket_that_fails_gives_no_id_away() -> None:
    objects = FailingObjects(system().clock)
    door = RegistryDoor(objects=objects)
    objects.failing = "/ids/"
    assert await door.code("POST", "/subjects/orders/versions", sent(record("id"))) == (503, 50302)
    assert await door.get("/subjects") == []
    objects.failing = "/rows/"
    assert await door.code("POST", "/subjects/orders/versions", sent(record("id"))) == (503, 50302)
    objects.failing = ""
    id = await door.register("orders", record("id"))
    await lose_store(door)
    assert (await door.get("/subjects/orders/versions/1"))["id"] == id, "who came again was answered with it kept"


async def lose_store(door: RegistryDoor, *, keep: frozenset[str] = frozenset()) -> None:
    """The registry's rows are gone but for those that were saved, and are restored."""
    cluster = await known_cluster(door.store)
    assert cluster is not None
    saved = [entry for entry in await door.store.range("schemas", *ALL) if entry.key in keep]
    fresh = MemoryStore(door.runtime)
    await fresh.transact([Transaction("schemas", {}, {entry.key: entry.value for entry in saved})])
    restored = await restore_registry(fresh, door.objects, [cluster])
    assert restored.notes == []
    await restore_cluster(fresh, cluster)
    door.store = fresh
    door.__post_init__()


async def filled() -> RegistryDoor:
    door = RegistryDoor()
    await door.register("address", record("street", name="Address"))
    refer = [{"name": "Address", "subject": "address", "version": 1}]
    await door.register("orders", record("id", ("to", "Address")), references=refer)
    await door.register("orders", record("id", ("to", "Address"), ("n", "int", 0)), references=refer)
    await door.register("gone", record("g"))
    await door.register(":.staging:orders", record("s"))
    await door.ask("PUT", "/config", {"compatibility": "FULL"})
    await door.ask("PUT", "/config/orders", {"compatibility": "NONE"})
    await door.ask("PUT", "/mode/:.staging:", {"mode": "READONLY"})
    await door.ask("DELETE", "/subjects/orders/versions/1")
    await door.ask("DELETE", "/subjects/gone")
    await door.ask("DELETE", "/subjects/gone?permanent=true")
    return door


async def told(door: RegistryDoor) -> list[Any]:
    paths = ["/subjects?deleted=true", "/schemas?deleted=true", "/contexts", "/config", "/config/orders"]
    paths += ["/mode/:.staging:", "/subjects/address/versions/1/referencedby", "/schemas/ids/1/versions"]
    return [(await door.ask("GET", path)) for path in paths]


@pytest.mark.parametrize("saved", ["nothing", "an early state", "everything"])
async def test_a_lost_store_has_its_registry_again(saved: str) -> None:
    door = await filled()
    before = await told(door)
    entries = await door.store.range("schemas", *ALL)
    keep = {"nothing": set(), "everything": {entry.key for entry in entries}}.get(
        saved, {"subject/./address", "schema/./0000000001"}
    )
    await lose_store(door, keep=frozenset(keep))
    assert await told(door) == before
    assert await door.code("GET", "/schemas/ids/4") == (404, 40403)
    assert await door.register("fresh", record("g")) == 5, "4 was that of a schema that is gone"
    assert await door.code("DELETE", "/subjects/address") == (422, 42206)


async def test_a_schema_that_was_deleted_for_good_is_still_in_the_bucket() -> None:
    door = await filled()
    cluster = await cluster_id(door.store, door.runtime)
    schema = await read_kept_schema(door.objects, ["other", cluster], SchemaId(".", 4))
    assert schema is not None
    assert '"name":"g"' in schema.text
    assert await read_kept_schema(door.objects, [cluster], SchemaId(".", 99)) is None


async def test_the_bucket_keeps_one_object_for_each_row_and_schema() -> None:
    door = await filled()
    for level in ("FULL", "NONE", "FULL"):
        await door.ask("PUT", "/config/orders", {"compatibility": level})
    keys = [info.key async for info in door.objects.list(SCHEMAS.rstrip("/"))]
    assert len([key for key in keys if "/ids/" in key]) == 5
    assert len([key for key in keys if "/rows/" in key]) == 4 + 2, "four subjects, two contexts"


async def test_another_process_reads_what_one_has_written() -> None:
    door = await filled()
    assert await told(door.again()) == await told(door)
