"""A schema registry of the user's own: what is asked of it, how often, and what its failures do."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.schemas.door import record
from support.schemas.peer import Peer, peer

from lakestream.errors import InvalidSetting, RegistryUnavailable
from lakestream.schemas.external import client as client_module
from lakestream.schemas.external import source as source_module
from lakestream.schemas.external.client import RegistryClient
from lakestream.schemas.external.source import ExternalSource
from lakestream.schemas.settings import SchemaSettings


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[tuple[Peer, ExternalSource]]:
    async with peer() as registry:
        told = SchemaSettings(**{"registry_url": registry.url} | settings)
        source = ExternalSource(RegistryClient(told), told.latest_ms)
        try:
            yield registry, source
        finally:
            source.close()


async def test_a_schema_is_asked_for_once_for_ever() -> None:
    async with opened() as (registry, source):
        known = await registry.door.register("orders-value", record("id"))
        found = await asyncio.gather(*(source.by_id(known, "orders-value") for _ in range(20)))
        assert len(set(found)) == 1
        assert registry.asked == [f"/schemas/ids/{known}"]
        registry.answer = (500, b"")
        assert await source.by_id(known, "orders-value") == found[0], "without the registry, too"


async def test_the_latest_is_kept_for_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(latest_ms=100) as (registry, source):
        first = await registry.door.register("orders-value", record("id"))
        for _ in range(5):
            latest = await source.latest("orders-value")
            assert latest is not None
            assert latest.schema_id == first
        assert len(registry.asked) == 1
        second = await registry.door.register("orders-value", record("id", ("n", "int", 0)))
        await asyncio.sleep(0.12)
        latest = await source.latest("orders-value")
        assert latest is not None
        assert latest.schema_id == second


async def test_only_new_versions_are_asked_about() -> None:
    async with opened() as (registry, source):
        for number in range(3):
            await registry.door.register("orders-value", record("id", *((f"n{n}", "int", 0) for n in range(number))))
        assert len(await source.versions("orders-value")) == 3
        registry.asked.clear()
        await registry.door.register(
            "orders-value", record("id", ("more", "int", 0), ("n0", "int", 0), ("n1", "int", 0))
        )
        assert len(await source.versions("orders-value")) == 4
        assert registry.asked == ["/subjects/orders-value/versions"] * 2 + ["/subjects/orders-value/versions/4"]


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"{}"),
        (401, b"{}"),
        (302, b""),
        (200, b"<html>"),
        (200, b"[1]"),
        (200, b'{"schema": 7}'),
        (200, b"x" * 9_000_000),
    ],
)
async def test_what_is_no_answer_is_an_outage(answer: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PAUSE_S", 0.05)
    async with opened() as (registry, source):
        known = await registry.door.register("orders-value", record("id"))
        registry.answer = answer
        with pytest.raises(RegistryUnavailable, match=r"^the schema registry http://127.0.0.1:\d+ "):
            await source.by_id(known, "orders-value")
        registry.answer = None
        await asyncio.sleep(0.06)
        assert await source.by_id(known, "orders-value") is not None


async def test_a_registry_that_is_down_is_left_alone_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (registry, source):
        registry.answer = (503, b"")
        for number in range(10):
            with pytest.raises(RegistryUnavailable):
                await source.by_id(number, "orders-value")
        assert len(registry.asked) == 1


async def test_an_answer_takes_its_time_at_most() -> None:
    async with opened(timeout_ms=150) as (registry, source):
        registry.delay_s = 2
        async with asyncio.timeout(1.5):
            with pytest.raises(RegistryUnavailable):
                await source.latest("orders-value")


async def test_nobody_listens() -> None:
    source = ExternalSource(RegistryClient(SchemaSettings(registry_url="http://127.0.0.1:9")), 0)
    with pytest.raises(RegistryUnavailable, match="cannot be reached"):
        await source.versions("orders-value")
    source.close()


async def test_secrets_are_shown_to_the_registry_and_to_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for settings, expected in (
        ({"registry_user": "me", "registry_password": "hunter2"}, "Basic bWU6aHVudGVyMg=="),
        ({"registry_token": "hunter2"}, "Bearer hunter2"),
    ):
        async with opened(**settings) as (registry, source):
            registry.answer = (403, b'{"message": "hunter2"}')
            with pytest.raises(RegistryUnavailable) as refused:
                await source.latest("orders-value")
            assert registry.headers["authorization"] == expected
            assert "hunter2" not in str(refused.value)
            assert "hunter2" not in repr(refused.value.__cause__)
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"registry_url": "orders"},
        {"registry_url": "ftp://host"},
        {"registry_url": "http://me:hunter2@host"},
        {"registry_url": "http://host", "registry_token": "t", "registry_user": "me"},
    ],
)
def test_what_the_settings_may_not_be(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting) as refused:
        RegistryClient(SchemaSettings(**settings))
    assert "hunter2" not in str(refused.value)


async def test_references_that_go_in_a_circle_are_a_trouble_of_the_schema() -> None:
    async with opened() as (registry, source):
        body = {"subject": "a", "version": 1, "id": 1, "schemaType": "JSON", "schema": "{}"}
        told = body | {"references": [{"name": "a.json", "subject": "a", "version": 1}]}
        registry.answer = (200, json.dumps(told).encode())
        found = await source.by_id(1, "a")
        assert found is not None
        assert "circle" in found.trouble
        assert (found.text, found.format) == ("", "JSON")


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_KEPT_BYTES", 2_000)
    async with opened() as (registry, source):
        ids = [await registry.door.register(f"s{number}", record(f"f{number}")) for number in range(20)]
        for each in (*ids, *ids):
            assert await source.by_id(each, "s") is not None
        assert len(registry.asked) == 40
        assert len(source._schemas) < 15
    assert client_module._ANSWER_MOST_BYTES < 9_000_000
