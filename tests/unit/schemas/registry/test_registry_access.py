"""No route of the registry gets past the authorizer. The cases come from the application: one without fails."""

from collections.abc import Iterator

from starlette.routing import BaseRoute, Mount, Route
from support.fakes.authorizers import DenyAll
from support.schemas.door import RegistryDoor, record, sent

from lakestream.access import Operation, Principal, ResourceKind
from lakestream.http.registry.routes import registry_app

EXEMPT = {
    "/": "says nothing of what is stored",
    "/v1/metadata/version": "says nothing of what is stored",
    "/schemas/types": "says nothing of what is stored",
    "/associations/resources/{rest:path}": "there are none",
}
EMPTY = {"/subjects", "/schemas"}
"""Answered with a list, which is empty."""


class OnlySubjects:
    def __init__(self, *names: str) -> None:
        self._names = names

    def allows(self, principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return kind is ResourceKind.SUBJECT and name in self._names

    def allows_any(self, principal: Principal, operation: Operation, kind: ResourceKind) -> bool:
        return kind is ResourceKind.SUBJECT


def _routes(routes: list[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for route in routes:
        if isinstance(route, Mount):
            yield from _routes(route.routes, prefix + route.path)
        else:
            assert isinstance(route, Route)
            for method in sorted(route.methods or ()):
                yield method, prefix + route.path, route.path


async def test_nothing_gets_past_who_denies_everything() -> None:
    open_door = RegistryDoor()
    await open_door.register("orders", record("id"))
    guid = (await open_door.get("/schemas/ids/1"))["guid"]
    door = RegistryDoor(open_door.store, open_door.objects, open_door.runtime, DenyAll())
    rows = await door.store.range("schemas", "", "\U0010ffff")
    asked = 0
    for method, path, own in _routes(registry_app(door.registry).routes):
        for subject in ("orders", "nothing"):
            for id in ("1", "77"):
                address = path.replace("{subject:path}", subject).replace("{rest:path}", "x")
                address = address.format(context=".x", version="1", id=id, guid=guid)
                bodies = {"PUT": {"compatibility": "NONE", "mode": "READONLY"}, "POST": sent(record("id"))}
                answer = await door.client.request(method, address, json=bodies.get(method))
                if own in EXEMPT or method == "HEAD":
                    continue
                asked += 1
                if own in EMPTY:
                    assert answer.json() == [], address
                else:
                    assert (answer.status_code, answer.json()["error_code"]) == (403, 40301), (method, address)
    assert asked > 100
    assert await door.store.range("schemas", "", "\U0010ffff") == rows


async def test_a_schema_is_shown_to_those_who_may_read_a_subject_that_has_it() -> None:
    everybody = RegistryDoor()
    await everybody.register("orders", record("id"))
    await everybody.register("secret", record("pin"))
    await everybody.register("shared", record("id"))
    door = RegistryDoor(everybody.store, everybody.objects, everybody.runtime, OnlySubjects("orders"))
    assert await door.get("/subjects") == ["orders"]
    assert await door.get("/schemas/ids/1/subjects") == ["orders"]
    assert await door.code("GET", "/schemas/ids/2") == (404, 40403)
    assert await door.code("GET", "/subjects/secret/versions/1") == (403, 40301)
    assert await door.code("POST", "/subjects/secret/versions", sent(record("id"))) == (403, 40301)
    assert await door.code("PUT", "/config", {"compatibility": "NONE"}) == (403, 40301)
