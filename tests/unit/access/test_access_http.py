"""No route of the HTTP door gets past the authorizer. The cases come from the application: one without fails."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.routing import BaseRoute, Mount, Route
from support.fakes.authorizers import DenyAll, OnlyTopics
from support.fakes.loops import run
from support.tables.files import catalog_of

from lakestream.access import ALLOW_ALL, Authorizer
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.frontier.lag import TopicLag, read_lag
from lakestream.http import create_app
from lakestream.http.iceberg.lagging import Behind
from lakestream.metadata.names.pointers import TableName
from lakestream.metadata.store import Entry
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topics
from lakestream.runtime import system

EXEMPT = {
    "/health": "for whoever looks after the process: says whether the store answers",
    "/ready": "for whoever sends requests here: says whether the stores answer",
    "/metrics": "for operators: an address of its own to keep others from",
    "/iceberg/v1/config": "says which calls there are, and nothing of what is stored",
}
EMPTY: dict[tuple[str, str], Any] = {("GET", "/lag"): [], ("GET", "/iceberg/v1/namespaces"): {"namespaces": []}}
"""Answered with a list, which is empty. HEAD of the same says no more."""

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "v", "type": "long", "required": False}]}
VERSION = {
    "version-id": 1,
    "timestamp-ms": 1,
    "schema-id": 0,
    "summary": {},
    "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
    "default-namespace": ["shop"],
}
IDENTIFIERS = {
    "source": {"namespace": ["shop"], "name": "b"},
    "destination": {"namespace": ["shop"], "name": "new"},
}
BODIES: dict[str, Any] = {
    "create_table": {"name": "new", "schema": SCHEMA},
    "register_table": {"name": "new", "metadata-location": "file:///somewhere.metadata.json", "overwrite": True},
    "commit_table": {"requirements": [], "updates": []},
    "commit_transaction": {"table-changes": [{"identifier": IDENTIFIERS["source"], "requirements": [], "updates": []}]},
    "rename_table": IDENTIFIERS,
    "report_metrics": {},
    "create_view": {"name": "new", "schema": SCHEMA, "view-version": VERSION},
    "register_view": {"name": "new", "metadata-location": "file:///somewhere.metadata.json"},
    "replace_view": {"requirements": [], "updates": []},
    "rename_view": IDENTIFIERS,
    "create_namespace": {"namespace": ["new"]},
    "update_properties": {"updates": {"a": "b"}},
}


class Place:
    """A namespace `shop` with the tables `a` and `b` and a view `b_seen`, and the topic `orders` with its table."""

    def __init__(self, folder: Path) -> None:
        self.runtime = system()
        self.folder = folder
        self.store = MemoryStore(self.runtime)
        self.tables = PyIcebergTables(self.store, f"file://{folder}/bucket", self.runtime)
        self.topics = Topics(self.store, self.runtime)
        self.freshened: list[TableName] = []

    async def fill(self) -> None:
        async with self.client(self.app(ALLOW_ALL)) as client:
            await client.post("/iceberg/v1/namespaces", json={"namespace": ["shop"]})
            for name in ("a", "b"):
                made = await client.post("/iceberg/v1/namespaces/shop/tables", json={"name": name, "schema": SCHEMA})
                assert made.status_code == 200
            view = {"name": "b_seen", "schema": SCHEMA, "view-version": VERSION}
            assert (await client.post("/iceberg/v1/namespaces/shop/views", json=view)).status_code == 200
        topic = await self.topics.create("Sales.Orders", 1, {})
        await self.tables.create(topic.topic_id, topic.name, 1, table=TableName(("default",), "sales_orders"))

    def app(self, authorizer: Authorizer, *, untouchable: bool = False) -> Any:
        catalog = catalog_of(self.tables.engines, authorizer)
        if untouchable:
            commits = SimpleNamespace(runtime=self.runtime)
            catalog._tables = SimpleNamespace(commits=commits)  # type: ignore[assignment]
            catalog._views = SimpleNamespace()  # type: ignore[assignment]
        return create_app(catalog, freshen=self._freshen, lag=self._lag, credentials={"s3.secret": "secret"})

    async def _freshen(self, name: TableName) -> Behind | None:
        self.freshened.append(name)
        return None

    async def _lag(self) -> list[TopicLag]:
        return await read_lag(self.store, self.topics, self.runtime.clock.now_ms())

    def client(self, app: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")

    async def rows(self) -> dict[str, list[Entry]]:
        store = self.store
        return {shard: await store.range(shard, "", "\U0010ffff") for shard in await store.shards("", "\U0010ffff")}

    def files(self) -> set[str]:
        return {str(path) for path in self.folder.rglob("*")}


def routes_of(app: Any) -> Iterator[tuple[str, str, str]]:
    """Method, path and handler of every route, through whatever stands in front of the application."""
    while not hasattr(app, "routes"):
        app = app._app
    yield from _routes("", app.routes)


def _routes(prefix: str, routes: list[BaseRoute]) -> Iterator[tuple[str, str, str]]:
    for route in routes:
        if isinstance(route, Mount):
            yield from _routes(prefix + route.path, route.routes)
        else:
            assert isinstance(route, Route), f"{route} is of a kind that this test does not know"
            for method in sorted(route.methods or ()):
                yield method, prefix + route.path, route.name


@pytest.mark.parametrize("space", ["shop", "default", "nowhere"])
def test_nothing_gets_past_who_denies_everything(tmp_path: Path, space: str) -> None:
    """The answer is the same whether a namespace, a table or a view is there or not."""

    async def work() -> None:
        place = Place(tmp_path)
        await place.fill()
        app = place.app(DenyAll(), untouchable=True)
        rows, files, asked = await place.rows(), place.files(), 0
        async with place.client(app) as client:
            for method, path, handler in routes_of(app):
                if path in EXEMPT:
                    continue
                body = BODIES[handler] if method == "POST" else None
                for name in ("b", "b_seen", "sales_orders", "nothing"):
                    address = path.format(namespace=space, table=name, view=name)
                    answer = await client.request(method, address, json=body)
                    where = f"{method} {address}"
                    asked += 1
                    assert b"secret" not in answer.content, where
                    if ("GET", path) in EMPTY and method in ("GET", "HEAD"):
                        assert method == "HEAD" or answer.json() == EMPTY["GET", path], where
                        continue
                    assert answer.status_code == 403, where
                    assert method == "HEAD" or answer.json()["error"]["type"] == "NotAuthorizedException", where
        assert asked > 100
        assert (await place.rows(), place.files(), place.freshened) == (rows, files, [])
        await place.tables.close()

    run(work())


def test_tables_and_views_that_may_not_be_described_are_left_out(tmp_path: Path) -> None:
    async def work() -> None:
        place = Place(tmp_path)
        await place.fill()
        async with place.client(place.app(OnlyTopics("shop", "shop.a"))) as client:
            spaces = (await client.get("/iceberg/v1/namespaces")).json()
            assert spaces == {"namespaces": [["default"], ["shop"]]}
            tables = (await client.get("/iceberg/v1/namespaces/shop/tables")).json()
            assert tables == {"identifiers": [{"namespace": ["shop"], "name": "a"}]}
            assert (await client.get("/iceberg/v1/namespaces/shop/views")).json() == {"identifiers": []}
            assert (await client.get("/iceberg/v1/namespaces/default/tables")).json() == {"identifiers": []}
            codes = [(await client.get(f"/iceberg/v1/namespaces/shop/tables/{name}")).status_code for name in "abc"]
            assert codes == [200, 403, 403]
            parts = [{"identifier": {"namespace": ["shop"], "name": name}} for name in ("a", "b")]
            both = await client.post("/iceberg/v1/transactions/commit", json={"table-changes": parts})
            assert both.status_code == 403
        await place.tables.close()

    run(work())


def test_the_table_of_a_topic_has_the_rights_of_the_topic(tmp_path: Path) -> None:
    async def work() -> None:
        place = Place(tmp_path)
        await place.fill()
        table = "/iceberg/v1/namespaces/default/tables/sales_orders"
        for name, code in (("Sales.Orders", 200), ("default.sales_orders", 403)):
            async with place.client(place.app(OnlyTopics(name))) as client:
                assert (await client.get(table)).status_code == code
                assert (await client.head(table)).status_code == (204 if code == 200 else code)
                assert [each["topic"] for each in (await client.get("/lag")).json()] == (
                    ["Sales.Orders"] if code == 200 else []
                )
                listed = (await client.get("/iceberg/v1/namespaces/default/tables")).json()["identifiers"]
                assert [each["name"] for each in listed] == (["sales_orders"] if code == 200 else [])
        await place.topics.create("soon", 1, {})
        async with place.client(place.app(OnlyTopics("soon"))) as client:
            waiting = await client.get("/iceberg/v1/namespaces/default/tables/soon")
            assert waiting.status_code == 404, "its table is still to be made"
        await place.tables.close()

    run(work())
