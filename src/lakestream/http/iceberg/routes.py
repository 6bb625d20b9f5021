"""The Iceberg REST catalog, without a prefix: namespaces, tables and views.

Left out on purpose: server-side scan planning, remote signing, functions, OAuth.
"""

from collections.abc import Mapping
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.http.iceberg import namespaces, tables, views
from lakestream.http.iceberg.errors import error_response


class IcebergCatalog:
    """See `TableRoutes` for the arguments."""

    def __init__(
        self,
        catalog: EngineCatalog,
        config: Mapping[str, str] = MappingProxyType({}),
        credentials: Mapping[str, str] = MappingProxyType({}),
        freshen: tables.Freshen | None = None,
    ) -> None:
        self._namespaces = namespaces.NamespaceRoutes(catalog)
        self._tables = tables.TableRoutes(catalog, config, credentials, freshen)
        self._views = views.ViewRoutes(catalog)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/config", self.config, methods=["GET"]),
            *self._tables.routes(),
            *self._views.routes(),
            *self._namespaces.routes(),
        ]

    async def config(self, _request: Request) -> Response:
        """There is one warehouse, whatever name a client has for it."""
        endpoints = [*namespaces.ENDPOINTS, *tables.ENDPOINTS, *views.ENDPOINTS]
        return JSONResponse({"defaults": {}, "overrides": {}, "endpoints": endpoints})


class Elsewhere:
    """The door of a deployment whose tables are in an external catalog: a list of them here would be a second truth."""

    def __init__(self, place: str) -> None:
        self._place = place

    def routes(self) -> list[Route]:
        return [Route("/{path:path}", self.elsewhere, methods=["GET", "POST", "DELETE"])]

    async def elsewhere(self, request: Request) -> Response:
        sentence = f"the tables of this deployment are in the external catalog {self._place}: load them from there"
        return error_response(request, 406, "UnsupportedOperationException", sentence)
