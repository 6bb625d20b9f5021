"""What clients send: flags, numbers, subjects and schemas, each checked before anything is looked up."""

from typing import Any, Final, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from lakestream.errors import RegistryProblem, RegistryRefused
from lakestream.schemas.registry.model import (
    DEFAULT_CONTEXT,
    Reference,
    Schema,
    SchemaType,
    Subject,
    parse_context,
    parse_subject,
)
from lakestream.schemas.registry.reading import LATEST
from lakestream.schemas.registry.registering import MOST_ID

BODY_MOST: Final = 8 << 20
T = TypeVar("T")


class SentReference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int = LATEST


class SentSchema(msgspec.Struct, frozen=True, rename="camel"):
    """Fields that we do not know are left alone, as newer clients send some."""

    schema: str = ""
    schema_type: str | None = None
    references: list[SentReference] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None

    def as_schema(self) -> Schema:
        """Raises `RegistryRefused`."""
        try:
            kind = SchemaType((self.schema_type or SchemaType.AVRO).upper())
        except ValueError as error:
            raise RegistryRefused(
                RegistryProblem.INVALID_SCHEMA,
                f"Invalid schema type {self.schema_type}: it is one of {', '.join(SchemaType)}",
            ) from error
        references = tuple(Reference(each.name, each.subject, each.version) for each in self.references or ())
        return Schema(kind, self.schema, references, self.metadata, self.rule_set)

    @property
    def given_id(self) -> int | None:
        return None if self.id is None or self.id < 0 else self.id


async def body_of(request: Request, kind: type[T]) -> T:
    """Raises `HTTPException`."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > BODY_MOST:
            raise HTTPException(413, f"the request has more than {BODY_MOST} bytes")
    try:
        return msgspec.json.decode(bytes(data), type=kind)
    except msgspec.ValidationError as error:
        raise HTTPException(422, f"the request is not as it should be: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise HTTPException(400, f"the request is not JSON: {error}") from error


def context_of(request: Request) -> str:
    """Of names that do not say one: `/contexts/<context>/…`."""
    found = request.path_params.get("context")
    return DEFAULT_CONTEXT if found is None else parse_context(found)


def subject_of(request: Request) -> Subject:
    return parse_subject(request.path_params.get("subject", ""), context_of(request))


def asked_context(request: Request) -> str:
    """Where an id is looked up: in the context of the subject that the client says it is of."""
    return parse_subject(request.query_params.get("subject", ""), context_of(request)).context


def flag(request: Request, *names: str) -> bool:
    return any(request.query_params.get(name, "").lower() == "true" for name in names)


def optional_flag(request: Request, name: str) -> bool | None:
    """None: it was not said, or not `true`, which is what clients send that leave it to the registry."""
    return True if flag(request, name) else None


def number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    try:
        return int(text)
    except ValueError as error:
        raise HTTPException(400, f"{name} is a number, not {text[:50]!r}") from error


def id_of(request: Request) -> int:
    text = request.path_params["id"]
    if not (text.isascii() and text.isdigit()) or int(text) > MOST_ID:
        raise HTTPException(404, f"HTTP 404 Not Found: an id is a number, not {text[:50]!r}")
    return int(text)


def version_of(request: Request) -> int:
    """Raises `RegistryRefused`."""
    text = request.path_params["version"]
    if text in ("latest", str(LATEST)):
        return LATEST
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= MOST_ID:
        raise RegistryRefused(
            RegistryProblem.INVALID_VERSION,
            f"The specified version '{text[:50]}' is not a valid version id. "
            'Allowed values are between [1, 2^31-1] and the string "latest"',
        )
    return int(text)


def page(request: Request, found: list[T]) -> list[T]:
    """`limit` below 0: all."""
    start, limit = max(0, number(request, "offset", 0)), number(request, "limit", -1)
    return found[start:] if limit < 0 else found[start : start + limit]
