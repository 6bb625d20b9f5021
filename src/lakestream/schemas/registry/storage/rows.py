"""The registry's rows: one shard, so that whatever belongs together changes together.

    ids/<context>                           the next id
    context/<context>                       its settings
    subject/<context>/<name>                its versions and settings
    schema/<context>/<id>                   never changes
    content/<context>/<digest>              which id a schema has
    guid/<guid>/<context>                   the same, for those who do not know the context
    use/<context>/<id>/<name>               a subject that has the schema as a version, deleted or not
    referrer/<context>/<name>␟<version>␟…   a schema of a live version that refers to that version

The first four are the state; the others follow from them (`indexes`).
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.store import Address
from lakestream.schemas.registry.model import Mode, Schema, Subject, SubjectConfig, parse_subject

SHARD: Final = "schemas"
_BETWEEN: Final = "\x1f"
"""No name has it: they are printable."""
LAST: Final = "\U0010ffff"


class VersionRow(msgspec.Struct, frozen=True, array_like=True):
    number: int
    id: int
    is_deleted: bool = False


class SubjectRow(msgspec.Struct, frozen=True, array_like=True):
    """`revision` grows with every change, also when a subject is gone and comes again: the row stays, empty.
    `versions` are in order."""

    revision: int = 0
    versions: tuple[VersionRow, ...] = ()
    config: SubjectConfig | None = None
    mode: Mode | None = None

    @property
    def live(self) -> list[VersionRow]:
        return [each for each in self.versions if not each.is_deleted]


class ContextRow(msgspec.Struct, frozen=True, array_like=True):
    revision: int = 0
    config: SubjectConfig | None = None
    mode: Mode | None = None


class SchemaId(msgspec.Struct, frozen=True, array_like=True):
    context: str
    id: int


def encoded(key: str, value: object) -> bytes:
    return codec.encode(value, Address(SHARD, key))


def ids_key(context: str) -> str:
    return f"ids/{context}"


def context_key(context: str) -> str:
    return f"context/{context}"


def subject_key(subject: Subject) -> str:
    return f"subject/{subject.context}/{subject.name}"


def subject_of(key: str) -> Subject:
    _, context, name = key.split("/", 2)
    return Subject(context, name)


def schema_key(context: str, id: int) -> str:
    return f"schema/{context}/{id:010d}"


def content_key(context: str, digest: str) -> str:
    return f"content/{context}/{digest}"


def guid_key(guid: object, context: str) -> str:
    return f"{guids_of(guid)}{context}"


def guids_of(guid: object) -> str:
    return f"guid/{guid}/"


def use_key(subject: Subject, id: int) -> str:
    return f"{uses_of(subject.context, id)}{subject.name}"


def uses_of(context: str, id: int) -> str:
    return f"use/{context}/{id:010d}/"


def referrer_key(subject: Subject, version: int, context: str, id: int) -> str:
    return f"{referrers_of(subject, version)}{context}{_BETWEEN}{id:010d}"


def referrers_of(subject: Subject, version: int) -> str:
    return _BETWEEN.join((f"referrer/{subject.context}/{subject.name}", str(version), ""))


def referrer_of(key: str) -> SchemaId:
    context, id = key.split(_BETWEEN)[-2:]
    return SchemaId(context, int(id))


def indexes(subject: Subject, id: int, schema: Schema, *, is_live: bool) -> Iterator[tuple[str, object]]:
    """The rows that follow from a subject's having this schema as a version."""
    found = SchemaId(subject.context, id)
    yield content_key(subject.context, schema.digest()), id
    yield guid_key(schema.guid(), subject.context), found
    yield use_key(subject, id), None
    if is_live:
        yield from ((key, None) for key in referrals(subject.context, id, schema))


def referrals(context: str, id: int, schema: Schema) -> Iterable[str]:
    for each in schema.references:
        yield referrer_key(parse_subject(each.subject, context), each.version, context, id)
