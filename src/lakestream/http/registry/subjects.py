"""`/subjects` and `/compatibility`: register, look up, list, check, delete."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakestream.http.identity import principal_of
from lakestream.http.registry.answers import answer, registered_fields
from lakestream.http.registry.requests import (
    SentSchema,
    body_of,
    context_of,
    flag,
    optional_flag,
    page,
    subject_of,
    version_of,
)
from lakestream.http.registry.texts import text_as_asked
from lakestream.schemas.registry.model import Registered
from lakestream.schemas.registry.registry import SchemaRegistry


class SubjectRoutes:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        """The longer paths first: a subject's name may have slashes."""
        subject = "/subjects/{subject:path}"
        version = f"{subject}/versions/{{version}}"
        check = "/compatibility/subjects/{subject:path}/versions"
        return [
            Route("/subjects", self.list_subjects, methods=["GET"]),
            Route(f"{version}/schema", self.version_text, methods=["GET"]),
            Route(f"{version}/referencedby", self.version_referrers, methods=["GET"]),
            Route(version, self.load_version, methods=["GET"]),
            Route(version, self.delete_version, methods=["DELETE"]),
            Route(f"{subject}/versions", self.list_versions, methods=["GET"]),
            Route(f"{subject}/versions", self.register_schema, methods=["POST"]),
            Route(f"{subject}/metadata", self.version_with_metadata, methods=["GET"]),
            Route(subject, self.lookup_schema, methods=["POST"]),
            Route(subject, self.delete_subject, methods=["DELETE"]),
            Route(f"{check}/{{version}}", self.check_with_version, methods=["POST"]),
            Route(check, self.check_with_all, methods=["POST"]),
        ]

    async def list_subjects(self, request: Request) -> Response:
        """Of all contexts, unless the path or the prefix says one."""
        principal, prefix = principal_of(request), request.query_params.get("subjectPrefix", "")
        context: str | None = context_of(request)
        if prefix.startswith((":*:", ":.")) or (not prefix and "context" not in request.path_params):
            context, prefix = None, prefix.removeprefix(":*:")
        if flag(request, "deletedOnly", "deleted_only"):
            found = await self._registry.deleted_subjects(principal, context, prefix)
        else:
            found = await self._registry.subjects(principal, context, prefix, deleted=flag(request, "deleted"))
        return answer([str(subject) for subject in page(request, found)])

    async def list_versions(self, request: Request) -> Response:
        found = await self._registry.versions(
            principal_of(request),
            subject_of(request),
            deleted=flag(request, "deleted"),
            only_deleted=flag(request, "deletedOnly", "deleted_only"),
        )
        return answer(page(request, found))

    async def load_version(self, request: Request) -> Response:
        return await self._answer(request, await self._version(request))

    async def version_text(self, request: Request) -> Response:
        found = await self._version(request)
        text = await text_as_asked(request, self._registry, found.subject.context, found.schema)
        return Response(text, media_type="application/json")

    async def version_referrers(self, request: Request) -> Response:
        found = await self._registry.referrers(principal_of(request), subject_of(request), version_of(request))
        return answer(page(request, [place.id for place in found]))

    async def version_with_metadata(self, request: Request) -> Response:
        names, values = (request.query_params.getlist(name) for name in ("key", "value"))
        found = await self._registry.with_metadata(
            principal_of(request),
            subject_of(request),
            dict(zip(names, values, strict=False)),
            deleted=flag(request, "deleted"),
        )
        return await self._answer(request, found)

    async def register_schema(self, request: Request) -> Response:
        sent = await body_of(request, SentSchema)
        found = await self._registry.register(
            principal_of(request),
            subject_of(request),
            sent.as_schema(),
            normalize=optional_flag(request, "normalize"),
            id=sent.given_id,
            version=sent.version,
        )
        return answer(registered_fields(found))

    async def lookup_schema(self, request: Request) -> Response:
        sent = await body_of(request, SentSchema)
        found = await self._registry.lookup(
            principal_of(request),
            subject_of(request),
            sent.as_schema(),
            normalize=optional_flag(request, "normalize"),
            deleted=flag(request, "deleted"),
        )
        return await self._answer(request, found)

    async def delete_subject(self, request: Request) -> Response:
        found = await self._registry.delete_subject(
            principal_of(request), subject_of(request), permanent=flag(request, "permanent")
        )
        return answer(found)

    async def delete_version(self, request: Request) -> Response:
        found = await self._registry.delete_version(
            principal_of(request), subject_of(request), version_of(request), permanent=flag(request, "permanent")
        )
        return answer(found)

    async def check_with_version(self, request: Request) -> Response:
        return await self._check(request, version_of(request))

    async def check_with_all(self, request: Request) -> Response:
        return await self._check(request, None)

    async def _check(self, request: Request, number: int | None) -> Response:
        sent = await body_of(request, SentSchema)
        found = await self._registry.check(
            principal_of(request),
            subject_of(request),
            sent.as_schema(),
            number=number,
            normalize=optional_flag(request, "normalize"),
        )
        return answer({"is_compatible": not found} | ({"messages": found} if flag(request, "verbose") else {}))

    async def _version(self, request: Request) -> Registered:
        return await self._registry.version(
            principal_of(request), subject_of(request), version_of(request), deleted=flag(request, "deleted")
        )

    async def _answer(self, request: Request, found: Registered) -> Response:
        text = await text_as_asked(request, self._registry, found.subject.context, found.schema)
        return answer(registered_fields(found, text))
