"""An external REST catalog that wants OAuth2: a real token endpoint, a door that lets nobody in without its token."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from support.servers.catalogs import Place
from support.tables.files import ORDERS, open_door, write_file

from lakestream.errors import Unavailable
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system

TOKENS = "/oauth/tokens"


@dataclass
class Guard:
    asked: list[dict[str, str]] = field(default_factory=list)
    valid: set[str] = field(default_factory=set)

    def __call__(self, app: ASGIApp) -> ASGIApp:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive)
            if request.url.path == TOKENS:
                await self._token(parse_qs((await request.body()).decode()))(scope, receive, send)
            elif request.headers.get("Authorization", "").removeprefix("Bearer ") in self.valid:
                await app(scope, receive, send)
            else:
                error = {"message": "no such token", "type": "NotAuthorizedException", "code": 401}
                await JSONResponse({"error": error}, status_code=401)(scope, receive, send)

        return serve

    def expire(self) -> None:
        self.valid.clear()

    def _token(self, form: dict[str, list[str]]) -> JSONResponse:
        asked = {name: values[0] for name, values in form.items()}
        self.asked.append(asked)
        wanted = {"grant_type": "client_credentials", "client_id": "lake", "client_secret": "stream", "scope": "tables"}
        if {name: asked.get(name) for name in wanted} != wanted:
            return JSONResponse({"error": "invalid_client", "error_description": "who are you?"}, status_code=401)
        token = f"token-{len(self.asked)}"
        self.valid.add(token)
        return JSONResponse({"access_token": token, "token_type": "bearer", "expires_in": 3600})


@pytest.fixture
def guard() -> Guard:
    return Guard()


@pytest.fixture
def uri(tmp_path: Path, guard: Guard) -> Iterator[str]:
    with open_door(tmp_path / "door", guard, locations=[f"file://{tmp_path}/bucket"]) as door:
        yield door.uri


def place(uri: str, folder: Path, secret: str) -> Place:
    properties = {
        "type": "rest",
        "uri": uri,
        "credential": f"lake:{secret}",
        "oauth2-server-uri": uri.removesuffix("/iceberg") + TOKENS,
        "scope": "tables",
    }
    return Place(properties, f"file://{folder}/bucket", {})


async def test_tables_behind_oauth2(uri: str, guard: Guard, tmp_path: Path) -> None:
    tables = place(uri, tmp_path, "stream").tables(MemoryStore(system()), system())
    try:
        view = await tables.create(ORDERS, "orders", 1)
        view = await tables.commit(view, add=[write_file(tmp_path, 0, 3)], remove=[], frontier=(3,))
        assert guard.asked
        guard.expire()
        view = await tables.commit(view, add=[write_file(tmp_path, 3, 5)], remove=[], frontier=(5,))
        assert await tables.load(ORDERS) == view
        assert (view.frontier, len(view.files)) == ((5,), 2)
    finally:
        await tables.close()


async def test_a_wrong_secret_is_told_without_telling_it(uri: str, tmp_path: Path) -> None:
    tables = place(uri, tmp_path, "guessed").tables(MemoryStore(system()), system())
    try:
        with pytest.raises(Unavailable, match="who are you") as told:
            await tables.create(ORDERS, "orders", 1)
        assert "guessed" not in str(told.value)
    finally:
        await tables.close()
