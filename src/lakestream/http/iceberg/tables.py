"""Tables of the REST catalog: list (in pages), create (also staged), register, load, commit, commit to several at once,
exists, drop (also purge), rename, credentials; metrics reports, which are thrown away."""

import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final
from zlib import crc32

from pyiceberg.table.metadata import TableMetadata
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.catalog.engines.tables import NewTable
from lakestream.catalog.engines.transactions import TableChange
from lakestream.catalog.staging import Current
from lakestream.errors import RequestError, Unavailable
from lakestream.http.iceberg.answers import as_of_time, makes_no_folders, reads_by_time
from lakestream.http.iceberg.errors import OutcomeUnknown
from lakestream.http.iceberg.lagging import AS_OF, Behind, freshness_properties, with_freshness
from lakestream.http.iceberg.messages import CommitTable, CommitTransaction, CreateTable, RegisterTable, Rename
from lakestream.http.iceberg.requests import body_of, name_of, named, namespace_of, page_of, read
from lakestream.http.identity import principal_of
from lakestream.metadata.names.pointers import TableName

Freshen = Callable[[TableName], Awaitable[Behind | None]]
"""Brings a table up to date before it is loaded. Never raises `LakestreamError`; None: nothing has to be told."""

ENDPOINTS: Final = [
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
]
_DELEGATION: Final = "X-Iceberg-Access-Delegation"
_VENDED: Final = "vended-credentials"


class TableRoutes:
    """`config` goes to engines with each table: what their file access needs to know. `credentials` are secrets that go
    to those who ask for them. `freshen` runs before each load."""

    def __init__(
        self,
        catalog: EngineCatalog,
        config: Mapping[str, str],
        credentials: Mapping[str, str],
        freshen: Freshen | None,
    ) -> None:
        self._catalog = catalog
        self._config = dict(config)
        self._credentials = dict(credentials)
        self._freshen = freshen

    def routes(self) -> list[Route]:
        space, table = "/v1/namespaces/{namespace}", "/v1/namespaces/{namespace}/tables/{table}"
        return [
            Route(f"{space}/tables", self.list_tables, methods=["GET"]),
            Route(f"{space}/tables", self.create_table, methods=["POST"]),
            Route(f"{space}/register", self.register_table, methods=["POST"]),
            Route(f"{table}/credentials", self.load_credentials, methods=["GET"]),
            Route(f"{table}/metrics", self.report_metrics, methods=["POST"]),
            Route(table, self.table_exists, methods=["HEAD"]),
            Route(table, self.load_table, methods=["GET"]),
            Route(table, self.commit_table, methods=["POST"]),
            Route(table, self.drop_table, methods=["DELETE"]),
            Route("/v1/tables/rename", self.rename_table, methods=["POST"]),
            Route("/v1/transactions/commit", self.commit_transaction, methods=["POST"]),
        ]

    async def list_tables(self, request: Request) -> Response:
        namespace = namespace_of(request)
        page, token = page_of(request, await self._catalog.tables(principal_of(request), namespace))
        answer: dict[str, Any] = {"identifiers": [{"namespace": namespace, "name": name} for name in page]}
        return JSONResponse(answer if token is None else answer | {"next-page-token": token})

    async def create_table(self, request: Request) -> Response:
        wanted = await body_of(request, CreateTable)
        table = NewTable(
            name=TableName(namespace_of(request), wanted.name),
            schema=wanted.table_schema,
            spec=wanted.partition_spec,
            order=wanted.write_order,
            location=wanted.location,
            properties=wanted.properties,
        )
        if wanted.stage_create:
            staged = await self._catalog.stage(principal_of(request), table)
            if makes_no_folders(request.headers.get("User-Agent", "")):
                await self._catalog.make_folder(principal_of(request), table.name, staged)
            return await self._answer(request, None, staged)
        return await self._told(request, await self._catalog.create(principal_of(request), table))

    async def register_table(self, request: Request) -> Response:
        wanted = await body_of(request, RegisterTable)
        name = TableName(namespace_of(request), wanted.name)
        current = await self._catalog.register(
            principal_of(request), name, wanted.metadata_location, overwrite=wanted.overwrite
        )
        return await self._answer(request, current.location, current.metadata)

    async def table_exists(self, request: Request) -> Response:
        await self._catalog.check_table(principal_of(request), name_of(request, "table"))
        return Response(status_code=204)

    async def load_table(self, request: Request) -> Response:
        name = name_of(request, "table")
        snapshots = request.query_params.get("snapshots", "all")
        if snapshots not in ("all", "refs"):
            raise RequestError(f"snapshots can be all or refs, not {snapshots!r}")
        asked_ms = self._catalog.now_ms()
        current, behind = await self._catalog.load(principal_of(request), name, self._freshen)
        told = await self._catalog.told(current)
        if behind is not None:
            told |= freshness_properties(behind, current.metadata)
        tag = _etag(request, current.location, told)
        if tag in _known_tags(request):
            return Response(status_code=304, headers={"ETag": tag})
        await self._catalog.check_readable(principal_of(request), current)
        metadata = current.metadata if snapshots == "all" else _with_refs_only(current.metadata)
        if reads_by_time(request.headers.get("User-Agent", "")):
            metadata = as_of_time(metadata, asked_ms)
        return await self._answer(request, current.location, metadata, told)

    async def load_credentials(self, request: Request) -> Response:
        await self._catalog.check_access(principal_of(request), name_of(request, "table"))
        return JSONResponse({"storage-credentials": self._vended()})

    async def commit_table(self, request: Request) -> Response:
        wanted = await body_of(request, CommitTable)
        try:
            current = await self._catalog.commit(
                principal_of(request), name_of(request, "table"), wanted.requirements, wanted.updates
            )
        except Unavailable as error:
            raise OutcomeUnknown(str(error)) from error
        return await self._told(request, current)

    async def commit_transaction(self, request: Request) -> Response:
        wanted = await body_of(request, CommitTransaction)
        parts = [TableChange(named(part.identifier), part.requirements, part.updates) for part in wanted.table_changes]
        try:
            await self._catalog.commit_all(principal_of(request), parts)
        except Unavailable as error:
            raise OutcomeUnknown(str(error)) from error
        return Response(status_code=204)

    async def drop_table(self, request: Request) -> Response:
        purge = request.query_params.get("purgeRequested", "false").lower() == "true"
        await self._catalog.drop(principal_of(request), name_of(request, "table"), purge=purge)
        return Response(status_code=204)

    async def rename_table(self, request: Request) -> Response:
        wanted = await body_of(request, Rename)
        await self._catalog.rename(principal_of(request), named(wanted.source), named(wanted.destination))
        return Response(status_code=204)

    async def report_metrics(self, request: Request) -> Response:
        await self._catalog.check_table(principal_of(request), name_of(request, "table"))
        await read(request)
        return Response(status_code=204)

    def _vended(self) -> list[dict[str, Any]]:
        return [{"prefix": self._catalog.bucket_url, "config": self._credentials}] if self._credentials else []

    async def _told(self, request: Request, current: Current) -> Response:
        return await self._answer(request, current.location, current.metadata, await self._catalog.told(current))

    async def _answer(
        self,
        request: Request,
        location: str | None,
        metadata: TableMetadata,
        told: Mapping[str, str] = MappingProxyType({}),
    ) -> Response:
        """LoadTableResult, which is also a commit's answer. A staged table has no location yet. What is `told` of
        the table is among its properties."""
        text = await self._catalog.json(with_freshness(metadata, told))
        head: dict[str, Any] = {"config": dict(self._config)}
        if self._credentials and _VENDED in request.headers.get(_DELEGATION, ""):
            head["config"] |= self._credentials
            head["storage-credentials"] = self._vended()
        headers = {}
        if location is not None:
            head["metadata-location"] = location
            headers["ETag"] = _etag(request, location, told)
        answer = f'{json.dumps(head)[:-1]}, "metadata": {text}}}'
        return Response(answer, media_type="application/json", headers=headers)


def _etag(request: Request, location: str, told: Mapping[str, str]) -> str:
    """Metadata is never changed under its name; what is left out of it, or told beside it, is part of the tag."""
    about = json.dumps({name: value for name, value in told.items() if name != AS_OF}) if told else ""
    tag = crc32(about.encode(), crc32(location.encode()))
    return f'"{tag:08x}-{request.query_params.get("snapshots", "all")}"'


def _known_tags(request: Request) -> list[str]:
    return [tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")]


def _with_refs_only(metadata: TableMetadata) -> TableMetadata:
    """Without the snapshots that no branch or tag names; an engine that wants those asks again for all."""
    named_ids = {ref.snapshot_id for ref in metadata.refs.values()}
    snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in named_ids]
    return metadata.model_copy(update={"snapshots": snapshots})
