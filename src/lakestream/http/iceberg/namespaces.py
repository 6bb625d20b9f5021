"""Namespaces of the REST catalog: list (in pages), create, load, exists, drop, properties."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.http.iceberg.messages import CreateNamespace, UpdateProperties
from lakestream.http.iceberg.requests import LEVEL, body_of, namespace_of, page_of
from lakestream.http.identity import principal_of
from lakestream.metadata.names.pointers import Namespace

ENDPOINTS = [
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
]

_LOCATION: Final = "location"


class NamespaceRoutes:
    def __init__(self, catalog: EngineCatalog) -> None:
        self._catalog = catalog

    def routes(self) -> list[Route]:
        space = "/v1/namespaces/{namespace}"
        return [
            Route("/v1/namespaces", self.list_namespaces, methods=["GET"]),
            Route("/v1/namespaces", self.create_namespace, methods=["POST"]),
            Route(space, self.namespace_exists, methods=["HEAD"]),
            Route(space, self.load_namespace, methods=["GET"]),
            Route(space, self.drop_namespace, methods=["DELETE"]),
            Route(f"{space}/properties", self.update_properties, methods=["POST"]),
        ]

    async def list_namespaces(self, request: Request) -> Response:
        parent = request.query_params.get("parent", "")
        above = tuple(parent.split(LEVEL)) if parent else ()
        found = await self._catalog.namespaces(principal_of(request), above)
        page, token = page_of(request, [namespace[-1] for namespace in found])
        answer: dict[str, Any] = {"namespaces": [[*above, name] for name in page]}
        return JSONResponse(answer if token is None else answer | {"next-page-token": token})

    async def create_namespace(self, request: Request) -> Response:
        wanted = await body_of(request, CreateNamespace)
        namespace = tuple(wanted.namespace)
        await self._catalog.create_namespace(principal_of(request), namespace, wanted.properties)
        return self._answer(namespace, wanted.properties)

    async def namespace_exists(self, request: Request) -> Response:
        await self._catalog.namespace(principal_of(request), namespace_of(request))
        return Response(status_code=204)

    async def load_namespace(self, request: Request) -> Response:
        namespace = namespace_of(request)
        return self._answer(namespace, await self._catalog.namespace(principal_of(request), namespace))

    async def drop_namespace(self, request: Request) -> Response:
        await self._catalog.drop_namespace(principal_of(request), namespace_of(request))
        return Response(status_code=204)

    async def update_properties(self, request: Request) -> Response:
        wanted = await body_of(request, UpdateProperties)
        both = sorted(set(wanted.updates) & set(wanted.removals))
        if both:
            raise HTTPException(422, f"properties cannot be both set and removed: {', '.join(both)}")
        removed, missing = await self._catalog.set_properties(
            principal_of(request), namespace_of(request), wanted.updates, wanted.removals
        )
        return JSONResponse({"updated": sorted(wanted.updates), "removed": removed, "missing": missing})

    def _answer(self, namespace: Namespace, properties: Mapping[str, str]) -> Response:
        """With a location, always. Trino makes a table before it knows where, unless the namespace has one, and then
        finds the table's folder taken: by that very table."""
        location = self._catalog.location_of(namespace)
        return JSONResponse({"namespace": namespace, "properties": {_LOCATION: location, **properties}})
