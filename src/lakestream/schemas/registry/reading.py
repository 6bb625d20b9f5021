"""What is in the registry: by id, by subject and version, by text."""

from collections.abc import Iterable
from typing import Final

from lakestream.errors import RegistryProblem, RegistryRefused
from lakestream.metadata import codec
from lakestream.metadata.store import Address, Store
from lakestream.schemas.registry.model import Registered, Schema, Subject
from lakestream.schemas.registry.storage.draft import Draft
from lakestream.schemas.registry.storage.rows import (
    LAST,
    SHARD,
    SchemaId,
    SubjectRow,
    VersionRow,
    guids_of,
    referrer_of,
    referrers_of,
    schema_key,
    subject_key,
    subject_of,
    uses_of,
)

LATEST: Final = -1
_SUBJECTS: Final = "subject/"
_CONTEXTS: Final = "context/"


def pick(row: SubjectRow, number: int, *, deleted: bool) -> VersionRow:
    """`number` may be `LATEST`. Raises `RegistryRefused`."""
    versions = row.versions if deleted else row.live
    found = versions[-1:] if number == LATEST else [each for each in versions if each.number == number]
    if not found:
        raise RegistryRefused(RegistryProblem.UNKNOWN_VERSION, f"Version {number} not found.")
    return found[0]


def unknown_subject(subject: Subject) -> RegistryRefused:
    return RegistryRefused(RegistryProblem.UNKNOWN_SUBJECT, f"Subject '{subject}' not found.")


def unknown_schema(id: object = None) -> RegistryRefused:
    told = "Schema not found" if id is None else f"Schema {id} not found"
    return RegistryRefused(RegistryProblem.UNKNOWN_SCHEMA, told)


async def known_subject(draft: Draft, subject: Subject, *, deleted: bool = False) -> SubjectRow:
    """Raises `RegistryRefused` if it has no versions, or only deleted ones that are not asked for."""
    row = await draft.get(subject_key(subject), SubjectRow)
    if row is None or not (row.versions if deleted else row.live):
        raise unknown_subject(subject)
    return row


async def subject_rows(store: Store, context: str | None, prefix: str = "") -> list[tuple[Subject, SubjectRow]]:
    """In order. `context`: None for all of them, and then the prefix is that of qualified names."""
    start = _SUBJECTS if context is None else f"{_SUBJECTS}{context}/{prefix}"
    found = [
        (subject_of(entry.key), codec.decode(entry.value, SubjectRow, Address(SHARD, entry.key)))
        for entry in await store.range(SHARD, start, start + LAST)
    ]
    return [each for each in found if context is not None or str(each[0]).startswith(prefix)]


async def contexts(store: Store) -> list[str]:
    return [entry.key.removeprefix(_CONTEXTS) for entry in await store.range(SHARD, _CONTEXTS, _CONTEXTS + LAST)]


async def schema_at(draft: Draft, context: str, id: int) -> Schema:
    schema = await draft.get(schema_key(context, id), Schema)
    if schema is None:
        raise unknown_schema(id)
    return schema


async def place_of_guid(draft: Draft, guid: str) -> SchemaId:
    for key in await draft.keys(guids_of(guid)):
        place = await draft.get(key, SchemaId)
        if place is not None:
            return place
    raise unknown_schema(guid)


async def users_of(draft: Draft, context: str, id: int, *, deleted: bool) -> list[tuple[Subject, VersionRow]]:
    """The versions of subjects that have this schema, in order."""
    prefix = uses_of(context, id)
    found = []
    for key in await draft.keys(prefix):
        subject = Subject(context, key.removeprefix(prefix))
        row = await draft.get(subject_key(subject), SubjectRow) or SubjectRow()
        found += [(subject, each) for each in (row.versions if deleted else row.live) if each.id == id]
    return found


async def referrers(draft: Draft, subject: Subject, number: int) -> list[SchemaId]:
    return sorted(
        (referrer_of(key) for key in await draft.keys(referrers_of(subject, number))),
        key=lambda place: (place.context, place.id),
    )


async def registered(draft: Draft, subject: Subject, version: VersionRow) -> Registered:
    schema = await schema_at(draft, subject.context, version.id)
    return Registered(subject, version.number, version.id, schema, version.is_deleted)


async def all_registered(
    draft: Draft, rows: Iterable[tuple[Subject, SubjectRow]], *, deleted: bool, latest: bool
) -> list[Registered]:
    chosen = [(subject, row.versions if deleted else row.live) for subject, row in rows]
    wanted = [(subject, each) for subject, versions in chosen for each in (versions[-1:] if latest else versions)]
    return [await registered(draft, subject, version) for subject, version in wanted]
