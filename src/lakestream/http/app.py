"""The HTTP door as one application: `/iceberg` for engines, `/registry` for clients with schemas, `/sql` for questions,
`/v3` and `/kafka` for REST clients, `/health`, `/ready`, `/lag` and `/metrics` for operators."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.errors import LakestreamError
from lakestream.frontier.lag_gauges import as_gauges
from lakestream.http.guard import Guard
from lakestream.http.iceberg.errors import on_http_error, on_invalid_request, on_lakestream_error, on_unexpected_error
from lakestream.http.iceberg.routes import Elsewhere, IcebergCatalog
from lakestream.http.iceberg.tables import Freshen
from lakestream.http.identity import Identified, principal_of
from lakestream.http.lag import ReadLag, as_json
from lakestream.http.mcp.door import McpDoor
from lakestream.http.registry.routes import registry_app
from lakestream.http.rest.door import RestDoor
from lakestream.http.sql.routes import SqlRoutes
from lakestream.metrics import HttpMetrics
from lakestream.query.queries import Queries
from lakestream.schemas.registry.registry import SchemaRegistry

_log = logging.getLogger(__name__)

_HEALTH_TIMEOUT_S: Final = 5.0


def create_app(
    catalog: EngineCatalog,
    *,
    table_config: Mapping[str, str] = MappingProxyType({}),
    credentials: Mapping[str, str] = MappingProxyType({}),
    metrics: HttpMetrics | None = None,
    freshen: Freshen | None = None,
    lag: ReadLag | None = None,
    ready: Callable[[], Awaitable[Sequence[str]]] | None = None,
    elsewhere: str = "",
    hosts: Sequence[str] = (),
    registry: SchemaRegistry | None = None,
    queries: Queries | None = None,
    mcp: McpDoor | None = None,
    rest: RestDoor | None = None,
) -> ASGIApp:
    """The tables behind `catalog` stay the caller's to close. `table_config` goes to engines with each table,
    `credentials` to those who ask for them; `freshen` runs before each load of a table; `lag` tells how far tables are
    behind; `ready` what keeps this process from serving, if anything does. `elsewhere` names the external catalog that
    has the tables: then nothing is served of them here. `hosts`: see `Guard`. `registry`: None if schemas are in one of
    the owner's. `queries`: None if nobody may ask any; `mcp`: the same for
    agents. `rest`: None where there are no streams."""
    measured = metrics or HttpMetrics()

    async def health(_request: Request) -> Response:
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                await catalog.is_there()
        except (LakestreamError, TimeoutError) as error:
            return JSONResponse({"status": "failing", "reason": str(error) or "time-out"}, status_code=503)
        return JSONResponse({"status": "ok"})

    async def show_ready(_request: Request) -> Response:
        reasons = list(await ready()) if ready is not None else []
        told = {"status": "not ready", "reasons": reasons} if reasons else {"status": "ready"}
        return JSONResponse(told, status_code=503 if reasons else 200)

    async def show_metrics(_request: Request) -> Response:
        text = generate_latest(measured.registry).decode()
        if lag is not None:
            try:
                text += as_gauges(await lag())
            except LakestreamError as error:
                _log.warning("how far tables are behind cannot be told now: %s", error)
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def show_lag(request: Request) -> Response:
        found = await lag() if lag is not None else []
        told = catalog.visible_topics(principal_of(request), found, lambda each: each.topic)
        return JSONResponse([as_json(each) for each in told])

    iceberg = Elsewhere(elsewhere) if elsewhere else IcebergCatalog(catalog, table_config, credentials, freshen)
    app = Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            Route("/ready", show_ready, methods=["GET"]),
            Route("/metrics", show_metrics, methods=["GET"]),
            Route("/lag", show_lag, methods=["GET"]),
            *([] if queries is None else SqlRoutes(queries).routes()),
            *([] if mcp is None else [mcp.route()]),
            *([] if rest is None else rest.routes()),
            Mount("/iceberg", routes=iceberg.routes()),
            *([] if registry is None else [Mount("/registry", app=registry_app(registry))]),
        ],
        exception_handlers={
            LakestreamError: on_lakestream_error,
            ValidationError: on_invalid_request,
            HTTPException: on_http_error,
            Exception: on_unexpected_error,
        },
    )
    return _Measured(Guard(Identified(app), hosts), measured)


class _Measured:
    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def watching(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watching)
        finally:
            self._metrics.observe(scope["method"], _route_name(scope), status, time.perf_counter() - started)


def _route_name(scope: Scope) -> str:
    """The handler's name: paths hold names that clients choose, and there may be any number of those."""
    return getattr(scope.get("endpoint"), "__name__", "unmatched")
