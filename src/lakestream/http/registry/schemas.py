"""`/schemas` and `/contexts`: by id, by guid, all of them."""

from typing import Final
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakestream.http.identity import principal_of
from lakestream.http.registry.answers import answer, registered_fields, schema_fields
from lakestream.http.registry.errors import refusal
from lakestream.http.registry.requests import asked_context, context_of, flag, id_of, page
from lakestream.http.registry.texts import text_as_asked
from lakestream.schemas.registry.model import SchemaType
from lakestream.schemas.registry.reading import unknown_schema
from lakestream.schemas.registry.registry import SchemaRegistry

_NO_ASSOCIATION: Final = 40410


class SchemaRoutes:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route("/schemas", self.list_schemas, methods=["GET"]),
            Route("/schemas/types", self.list_types, methods=["GET"]),
            Route("/schemas/ids/{id}", self.load_schema, methods=["GET"]),
            Route("/schemas/ids/{id}/schema", self.schema_text, methods=["GET"]),
            Route("/schemas/ids/{id}/subjects", self.schema_subjects, methods=["GET"]),
            Route("/schemas/ids/{id}/versions", self.schema_versions, methods=["GET"]),
            Route("/schemas/guids/{guid}", self.load_guid, methods=["GET"]),
            Route("/schemas/guids/{guid}/ids", self.guid_ids, methods=["GET"]),
            Route("/contexts", self.list_contexts, methods=["GET"]),
            Route("/associations/resources/{rest:path}", self.list_associations, methods=["GET"]),
        ]

    async def list_schemas(self, request: Request) -> Response:
        prefix = request.query_params.get("subjectPrefix", "")
        found = await self._registry.every(
            principal_of(request),
            None if prefix.startswith(":.") else context_of(request),
            prefix,
            deleted=flag(request, "deleted"),
            latest=flag(request, "latestOnly"),
        )
        return answer([registered_fields(each) for each in page(request, found)])

    async def list_types(self, _request: Request) -> Response:
        return answer([SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO])

    async def load_schema(self, request: Request) -> Response:
        context, id = asked_context(request), id_of(request)
        schema = await self._registry.by_id(principal_of(request), context, id)
        text = await text_as_asked(request, self._registry, context, schema)
        return answer({"guid": str(schema.guid())} | schema_fields(schema, text))

    async def schema_text(self, request: Request) -> Response:
        context = asked_context(request)
        schema = await self._registry.by_id(principal_of(request), context, id_of(request))
        text = await text_as_asked(request, self._registry, context, schema)
        return Response(text, media_type="application/json")

    async def schema_subjects(self, request: Request) -> Response:
        found = await self._users(request)
        return answer(page(request, list(dict.fromkeys(subject for subject, _ in found))))

    async def schema_versions(self, request: Request) -> Response:
        found = await self._users(request)
        return answer(page(request, [{"subject": subject, "version": version} for subject, version in found]))

    async def load_guid(self, request: Request) -> Response:
        place, schema = await self._registry.by_guid(principal_of(request), _guid(request))
        text = await text_as_asked(request, self._registry, place.context, schema)
        return answer({"id": place.id, "guid": str(schema.guid())} | schema_fields(schema, text))

    async def guid_ids(self, request: Request) -> Response:
        place, _ = await self._registry.by_guid(principal_of(request), _guid(request))
        return answer([{"context": place.context, "id": place.id}])

    async def list_contexts(self, request: Request) -> Response:
        return answer(page(request, await self._registry.contexts(principal_of(request))))

    async def list_associations(self, _request: Request) -> Response:
        """Clients ask which subjects a topic has before they name them as they always did."""
        return refusal(_NO_ASSOCIATION, "Association not found: subjects are named by the topic.")

    async def _users(self, request: Request) -> list[tuple[str, int]]:
        found = await self._registry.users(
            principal_of(request), asked_context(request), id_of(request), deleted=flag(request, "deleted")
        )
        return [(str(subject), version) for subject, version in found]


def _guid(request: Request) -> str:
    text = request.path_params["guid"]
    try:
        return str(UUID(text))
    except ValueError as error:
        raise unknown_schema(text[:50]) from error
