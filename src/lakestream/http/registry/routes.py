"""The registry's routes, also under `/contexts/<context>`, where names that say no context are of that one."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from lakestream.errors import LakestreamError
from lakestream.http.registry.answers import answer
from lakestream.http.registry.errors import on_http_error, on_lakestream_error, on_unexpected_error
from lakestream.http.registry.schemas import SchemaRoutes
from lakestream.http.registry.settings import SettingRoutes
from lakestream.http.registry.subjects import SubjectRoutes
from lakestream.schemas.registry.registry import SchemaRegistry


def registry_app(registry: SchemaRegistry) -> Starlette:
    routes: list[BaseRoute] = [
        *SubjectRoutes(registry).routes(),
        *SchemaRoutes(registry).routes(),
        *SettingRoutes(registry).routes(),
    ]
    return Starlette(
        routes=[
            Route("/", registry_root, methods=["GET"]),
            Route("/v1/metadata/version", registry_version, methods=["GET"]),
            *routes,
            Mount("/contexts/{context}", routes=routes),
        ],
        exception_handlers={
            LakestreamError: on_lakestream_error,
            HTTPException: on_http_error,
            Exception: on_unexpected_error,
        },
    )


async def registry_root(_request: Request) -> Response:
    return answer({})


async def registry_version(_request: Request) -> Response:
    return answer({"version": "7.9.0", "commitId": "lakestream"})
