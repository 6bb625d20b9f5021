"""What the registry talks about: schemas, subjects, versions, levels, modes."""

import hashlib
import re
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from lakestream.errors import RegistryProblem, RegistryRefused

DEFAULT_CONTEXT: Final = "."
_CONTEXT: Final = re.compile(r"\.[A-Za-z0-9_.\-]*")
_NAME_MOST: Final = 1024


class SchemaType(StrEnum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Level(StrEnum):
    """Which of a subject's earlier versions a new one must get along with, and in which direction."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def reads_earlier(self) -> bool:
        """The new schema reads what was written with earlier ones."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def read_by_earlier(self) -> bool:
        """Earlier schemas read what is written with the new one."""
        return self.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")


class Mode(StrEnum):
    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    """Whoever registers says which id a schema has. For moving here from another registry."""

    @property
    def is_read_only(self) -> bool:
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)


class Subject(NamedTuple):
    """Qualified, it is written `:.context:name`; in the default context just `name`. Ids are unique in a context."""

    context: str
    name: str

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def parse_subject(text: str, context: str = DEFAULT_CONTEXT) -> Subject:
    """`context`: of a name that does not say one. The name may be empty: then the context as a whole is meant. Raises
    `RegistryRefused`."""
    name = text
    if text.startswith(":."):
        context, colon, name = text[1:].partition(":")
        if not colon:
            raise invalid_subject(text)
    if (
        not _CONTEXT.fullmatch(context)
        or len(name) > _NAME_MOST
        or not name.isprintable()
        or (name.strip() != name)
        or name in ("__GLOBAL", "__EMPTY")
    ):
        raise invalid_subject(text)
    return Subject(context, name)


def parse_context(text: str) -> str:
    """With or without its first dot. Raises `RegistryRefused`."""
    context = text.strip(":")
    context = context if context.startswith(".") else f".{context}"
    if not _CONTEXT.fullmatch(context):
        raise invalid_subject(text)
    return context


def invalid_subject(text: str) -> RegistryRefused:
    return RegistryRefused(RegistryProblem.INVALID_SUBJECT, f"The specified subject '{text[:200]}' is not a valid.")


class Reference(msgspec.Struct, frozen=True, array_like=True):
    """`name`: what the schema's text calls it. `subject` is qualified if it is of another context."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True, array_like=True):
    """`metadata` and `rules` (of data contracts) are kept and given back; clients act on them."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rules: dict[str, Any] | None = None

    def digest(self) -> str:
        """The same for schemas that are one and the same."""
        tree = [self.type, self.text, [[*msgspec.structs.astuple(each)] for each in self.references]]
        more = [self.metadata, self.rules]
        return hashlib.sha256(msgspec.json.encode([tree, more], order="sorted")).hexdigest()

    def guid(self) -> UUID:
        return UUID(bytes=bytes.fromhex(self.digest())[:16], version=5)


class Registered(msgspec.Struct, frozen=True):
    """A schema as one version of a subject."""

    subject: Subject
    version: int
    id: int
    schema: Schema
    is_deleted: bool = False


class SubjectConfig(msgspec.Struct, frozen=True, array_like=True):
    """None: as the context says, or else the default context."""

    level: Level | None = None
    normalize: bool | None = None

    @property
    def is_empty(self) -> bool:
        return self.level is None and self.normalize is None
