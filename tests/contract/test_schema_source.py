"""What every source of schemas must do. One line per kind in `SOURCES`; each reads a registry that a test fills through
its door."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from support.schemas.door import RegistryDoor, record
from support.schemas.peer import peer

from lakestream.errors import RegistryUnavailable, Unavailable
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system
from lakestream.schemas.external.client import RegistryClient
from lakestream.schemas.external.source import ExternalSource
from lakestream.schemas.registry.source import RegistrySource
from lakestream.schemas.settings import SchemaSettings
from lakestream.schemas.source import SchemaSource, SubjectVersion
from lakestream.table.shape import ValueSchema


class AwayStore(MemoryStore):
    """Reads fail while it is away."""

    is_away = False

    async def get(self, addresses: Any) -> Any:
        if self.is_away:
            raise Unavailable("the store is away")
        return await super().get(addresses)


@dataclass
class Bench:
    """`away` ends every answer of the registry."""

    door: RegistryDoor
    source: SchemaSource
    away: Callable[[], None]


@asynccontextmanager
async def _own() -> AsyncIterator[Bench]:
    store = AwayStore(system())
    yield Bench(RegistryDoor(store), RegistrySource(store), lambda: setattr(store, "is_away", True))


@asynccontextmanager
async def _external() -> AsyncIterator[Bench]:
    """Our own registry as somebody else's, over HTTP."""
    async with peer() as registry:
        source = ExternalSource(RegistryClient(SchemaSettings(registry_url=registry.url)), 0)
        try:
            yield Bench(registry.door, source, lambda: setattr(registry, "answer", (503, b"")))
        finally:
            source.close()


SOURCES: dict[str, Callable[[], AbstractAsyncContextManager[Bench]]] = {"own": _own, "external": _external}


@pytest.fixture(params=SOURCES)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with SOURCES[request.param]() as opened:
        yield opened


async def test_a_subject_has_its_versions_hidden_ones_too(bench: Bench) -> None:
    first = await bench.door.register("orders-value", record("id"))
    second = await bench.door.register("orders-value", record("id", ("n", "int", 0)))
    assert await bench.source.versions("orders-value") == (SubjectVersion(1, first), SubjectVersion(2, second))
    await bench.door.ask("DELETE", "/subjects/orders-value/versions/2")
    assert await bench.source.versions("orders-value") == (SubjectVersion(1, first), SubjectVersion(2, second, True))
    latest = await bench.source.latest("orders-value")
    assert latest is not None
    assert latest.schema_id == first
    await bench.door.ask("DELETE", "/subjects/orders-value")
    assert [each.is_deleted for each in await bench.source.versions("orders-value")] == [True, True]
    assert await bench.source.latest("orders-value") is None
    hidden = await bench.source.by_id(second, "orders-value")
    assert hidden is not None, "values were written with it"
    await bench.door.ask("DELETE", "/subjects/orders-value?permanent=true")
    assert await bench.source.versions("orders-value") == ()


async def test_nobody_knows_what_is_not_there(bench: Bench) -> None:
    assert await bench.source.versions("orders-value") == ()
    assert await bench.source.latest("orders-value") is None
    assert await bench.source.by_id(7, "orders-value") is None


async def test_a_schema_comes_with_what_it_refers_to(bench: Bench) -> None:
    await bench.door.register("town", record("name", name="Town"))
    to_town = [{"name": "Town", "subject": "town", "version": 1}]
    await bench.door.register("address", record(("town", "Town"), name="Address"), references=to_town)
    to_address = [{"name": "Address", "subject": "address", "version": 1}]
    order = await bench.door.register("orders-value", record(("to", "Address")), references=to_address)
    found = await bench.source.by_id(order, "orders-value")
    assert found is not None
    assert [name for name, _ in found.references] == ["Town", "Address"], "each before those that need it"
    assert (found.schema_id, found.format, found.trouble) == (order, "AVRO", "")
    assert found == await bench.source.latest("orders-value")


@pytest.mark.parametrize(
    ("kind", "text"),
    [("JSON", '{"type":"object"}'), ("PROTOBUF", 'syntax = "proto3";\nmessage Order {\n  string id = 1;\n}\n')],
)
async def test_formats_are_told(bench: Bench, kind: str, text: str) -> None:
    schema_id = await bench.door.register("orders-value", text, kind)
    found = await bench.source.by_id(schema_id, "orders-value")
    assert found is not None
    assert found.format == kind
    assert found.text


async def test_ids_are_those_of_the_subjects_context(bench: Bench) -> None:
    await bench.door.register("other", record("x"))
    inside = await bench.door.register(":.staging:orders-value", record("id"))
    outside = await bench.door.register("orders-value", record("n"))
    assert await bench.source.versions(":.staging:orders-value") == (SubjectVersion(1, inside),)
    staged: ValueSchema | None = await bench.source.by_id(inside, ":.staging:orders-value")
    assert staged is not None
    assert '"id"' in staged.text
    assert await bench.source.by_id(outside, ":.staging:orders-value") is None


async def test_an_outage_is_told_as_one(bench: Bench) -> None:
    await bench.door.register("orders-value", record("id"))
    bench.away()
    for ask in (
        bench.source.versions("orders-value"),
        bench.source.latest("orders-value"),
        bench.source.by_id(1, "orders-value"),
    ):
        with pytest.raises(RegistryUnavailable, match="registry"):
            await ask
