"""Views of the REST catalog: list (in pages), create, load, replace, exists, drop, rename, register."""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.catalog.engines.views.views import CurrentView, NewView
from lakestream.errors import Unavailable
from lakestream.http.iceberg.errors import OutcomeUnknown
from lakestream.http.iceberg.messages import CommitView, CreateView, RegisterView, Rename
from lakestream.http.iceberg.requests import body_of, name_of, named, namespace_of, page_of
from lakestream.http.identity import principal_of
from lakestream.metadata.names.pointers import TableName

ENDPOINTS = [
    "GET /v1/{prefix}/namespaces/{namespace}/views",
    "POST /v1/{prefix}/namespaces/{namespace}/views",
    "GET /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/namespaces/{namespace}/register-view",
    "POST /v1/{prefix}/views/rename",
]


class ViewRoutes:
    def __init__(self, catalog: EngineCatalog) -> None:
        self._catalog = catalog

    def routes(self) -> list[Route]:
        space, view = "/v1/namespaces/{namespace}", "/v1/namespaces/{namespace}/views/{view}"
        return [
            Route(f"{space}/views", self.list_views, methods=["GET"]),
            Route(f"{space}/views", self.create_view, methods=["POST"]),
            Route(f"{space}/register-view", self.register_view, methods=["POST"]),
            Route(view, self.view_exists, methods=["HEAD"]),
            Route(view, self.load_view, methods=["GET"]),
            Route(view, self.replace_view, methods=["POST"]),
            Route(view, self.drop_view, methods=["DELETE"]),
            Route("/v1/views/rename", self.rename_view, methods=["POST"]),
        ]

    async def list_views(self, request: Request) -> Response:
        namespace = namespace_of(request)
        page, token = page_of(request, await self._catalog.views(principal_of(request), namespace))
        answer: dict[str, Any] = {"identifiers": [{"namespace": namespace, "name": name} for name in page]}
        return JSONResponse(answer if token is None else answer | {"next-page-token": token})

    async def create_view(self, request: Request) -> Response:
        wanted = await body_of(request, CreateView)
        name = TableName(namespace_of(request), wanted.name)
        new = NewView(name, wanted.view_schema, wanted.view_version, wanted.location, wanted.properties)
        return _answer(await self._catalog.create_view(principal_of(request), new))

    async def register_view(self, request: Request) -> Response:
        wanted = await body_of(request, RegisterView)
        name = TableName(namespace_of(request), wanted.name)
        return _answer(await self._catalog.register_view(principal_of(request), name, wanted.metadata_location))

    async def view_exists(self, request: Request) -> Response:
        await self._catalog.check_view(principal_of(request), name_of(request, "view"))
        return Response(status_code=204)

    async def load_view(self, request: Request) -> Response:
        return _answer(await self._catalog.load_view(principal_of(request), name_of(request, "view")))

    async def replace_view(self, request: Request) -> Response:
        wanted = await body_of(request, CommitView)
        uuid = wanted.requirements[0].uuid if wanted.requirements else None
        try:
            changed = await self._catalog.change_view(
                principal_of(request), name_of(request, "view"), uuid, wanted.updates
            )
        except Unavailable as error:
            raise OutcomeUnknown(str(error)) from error
        return _answer(changed)

    async def drop_view(self, request: Request) -> Response:
        await self._catalog.drop_view(principal_of(request), name_of(request, "view"))
        return Response(status_code=204)

    async def rename_view(self, request: Request) -> Response:
        wanted = await body_of(request, Rename)
        await self._catalog.rename_view(principal_of(request), named(wanted.source), named(wanted.destination))
        return Response(status_code=204)


def _answer(current: CurrentView) -> Response:
    """LoadViewResult, which is also the answer to a change."""
    head = json.dumps({"config": {}, "metadata-location": current.location})
    return Response(f'{head[:-1]}, "metadata": {current.metadata.model_dump_json()}}}', media_type="application/json")
