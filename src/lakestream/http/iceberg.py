"""The Iceberg REST catalog: namespaces and tables, without a prefix.

Served: config; namespaces list, create, load, exists, drop, properties; tables list, create
(also staged), load, commit, exists, drop (also purge), rename; metrics reports, which are thrown away.
Left out on purpose: views, register, transactions over several tables, credentials, server-side
scan planning, OAuth. Lists are answered whole, in one page.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pyiceberg.table.metadata import TableMetadata
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakestream.catalog.engines import EngineTables, NewTable
from lakestream.errors import RequestError, Unavailable
from lakestream.http.asked import as_asked, reads_by_time
from lakestream.http.errors import OutcomeUnknown
from lakestream.http.messages import (
    CommitTable,
    CreateNamespace,
    CreateTable,
    Message,
    RenameTable,
    UpdateProperties,
)
from lakestream.metadata.pointers import Namespace, TableName

M = TypeVar("M", bound=Message)

Freshen = Callable[[TableName], Awaitable[Mapping[str, str]]]
"""Brings a table up to date before it is loaded. Never raises `LakestreamError`; what it returns is told to the engine
beside the table's configuration."""

_MAX_BODY_BYTES: Final = 64 * 1024 * 1024
_LEVEL: Final = "\x1f"
_ENDPOINTS: Final = [
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
]


class IcebergCatalog:
    """`table_config` goes to engines with each table: what their file access needs to know. `freshen` runs before each
    load."""

    def __init__(self, tables: EngineTables, table_config: Mapping[str, str], freshen: Freshen | None = None) -> None:
        self._tables = tables
        self._freshen = freshen
        self._pointers = tables.commits.pointers
        self._table_config = dict(table_config)

    def routes(self) -> list[Route]:
        space, table = "/v1/namespaces/{namespace}", "/v1/namespaces/{namespace}/tables/{table}"
        return [
            Route("/v1/config", self.config, methods=["GET"]),
            Route("/v1/namespaces", self.list_namespaces, methods=["GET"]),
            Route("/v1/namespaces", self.create_namespace, methods=["POST"]),
            Route(space, self.namespace_exists, methods=["HEAD"]),
            Route(space, self.load_namespace, methods=["GET"]),
            Route(space, self.drop_namespace, methods=["DELETE"]),
            Route(f"{space}/properties", self.update_properties, methods=["POST"]),
            Route(f"{space}/tables", self.list_tables, methods=["GET"]),
            Route(f"{space}/tables", self.create_table, methods=["POST"]),
            Route(table, self.table_exists, methods=["HEAD"]),
            Route(table, self.load_table, methods=["GET"]),
            Route(table, self.commit_table, methods=["POST"]),
            Route(table, self.drop_table, methods=["DELETE"]),
            Route(f"{table}/metrics", self.report_metrics, methods=["POST"]),
            Route("/v1/tables/rename", self.rename_table, methods=["POST"]),
        ]

    async def config(self, _request: Request) -> Response:
        return JSONResponse({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS})

    async def list_namespaces(self, request: Request) -> Response:
        parent = request.query_params.get("parent", "")
        found = await self._pointers.namespaces(tuple(parent.split(_LEVEL)) if parent else ())
        return JSONResponse({"namespaces": found})

    async def create_namespace(self, request: Request) -> Response:
        wanted = await _body(request, CreateNamespace)
        await self._pointers.create_namespace(tuple(wanted.namespace), wanted.properties)
        return JSONResponse({"namespace": wanted.namespace, "properties": wanted.properties})

    async def namespace_exists(self, request: Request) -> Response:
        await self._pointers.namespace(_namespace(request))
        return Response(status_code=204)

    async def load_namespace(self, request: Request) -> Response:
        namespace = _namespace(request)
        return JSONResponse({"namespace": namespace, "properties": await self._pointers.namespace(namespace)})

    async def drop_namespace(self, request: Request) -> Response:
        await self._pointers.drop_namespace(_namespace(request))
        return Response(status_code=204)

    async def update_properties(self, request: Request) -> Response:
        wanted = await _body(request, UpdateProperties)
        both = sorted(set(wanted.updates) & set(wanted.removals))
        if both:
            raise HTTPException(422, f"properties cannot be both set and removed: {', '.join(both)}")
        removed, missing = await self._pointers.set_properties(_namespace(request), wanted.updates, wanted.removals)
        return JSONResponse({"updated": sorted(wanted.updates), "removed": removed, "missing": missing})

    async def list_tables(self, request: Request) -> Response:
        namespace = _namespace(request)
        names = await self._pointers.tables(namespace)
        return JSONResponse({"identifiers": [{"namespace": namespace, "name": name} for name in names]})

    async def create_table(self, request: Request) -> Response:
        wanted = await _body(request, CreateTable)
        table = NewTable(
            name=TableName(_namespace(request), wanted.name),
            schema=wanted.table_schema,
            spec=wanted.partition_spec,
            order=wanted.write_order,
            location=wanted.location,
            properties=wanted.properties,
        )
        if wanted.stage_create:
            return await self._answer(None, await self._tables.stage(table))
        current = await self._tables.create(table)
        return await self._answer(current.location, current.metadata)

    async def table_exists(self, request: Request) -> Response:
        await self._pointers.resolve(_table(request))
        return Response(status_code=204)

    async def load_table(self, request: Request) -> Response:
        name = _table(request)
        asked_ms = self._tables.commits.runtime.clock.now_ms()
        told = await self._freshen(name) if self._freshen is not None else {}
        current = await self._tables.load(name)
        metadata = current.metadata
        if reads_by_time(request.headers.get("User-Agent", "")):
            metadata = as_asked(metadata, asked_ms)
        return await self._answer(current.location, metadata, told)

    async def commit_table(self, request: Request) -> Response:
        wanted = await _body(request, CommitTable)
        try:
            current = await self._tables.commit(_table(request), wanted.requirements, wanted.updates)
        except Unavailable as error:
            raise OutcomeUnknown(str(error)) from error
        return await self._answer(current.location, current.metadata)

    async def drop_table(self, request: Request) -> Response:
        purge = request.query_params.get("purgeRequested", "false").lower() == "true"
        await self._tables.drop(_table(request), purge=purge)
        return Response(status_code=204)

    async def rename_table(self, request: Request) -> Response:
        wanted = await _body(request, RenameTable)
        source, destination = wanted.source, wanted.destination
        await self._tables.rename(
            TableName(tuple(source.namespace), source.name), TableName(tuple(destination.namespace), destination.name)
        )
        return Response(status_code=204)

    async def report_metrics(self, request: Request) -> Response:
        await _read(request)
        return Response(status_code=204)

    async def _answer(
        self, location: str | None, metadata: TableMetadata, told: Mapping[str, str] = MappingProxyType({})
    ) -> Response:
        """LoadTableResult, which is also a commit's answer. A staged table has no location yet."""
        text = await self._tables.commits.run(metadata.model_dump_json)
        head: dict[str, Any] = {"config": {**self._table_config, **told}}
        if location is not None:
            head["metadata-location"] = location
        return Response(f'{json.dumps(head)[:-1]}, "metadata": {text}}}', media_type="application/json")


def _namespace(request: Request) -> Namespace:
    return tuple(str(request.path_params["namespace"]).split(_LEVEL))


def _table(request: Request) -> TableName:
    return TableName(_namespace(request), str(request.path_params["table"]))


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise HTTPException(413, f"the request is larger than {_MAX_BODY_BYTES} bytes")
    return bytes(body)


async def _body(request: Request, kind: type[M]) -> M:
    """Raises pydantic's ValidationError, or `RequestError` for what a model's own code rejects."""
    data = await _read(request)
    try:
        return kind.model_validate_json(data)
    except (KeyError, TypeError) as error:
        raise RequestError(f"the request is not understood: {error}") from error
