"""Schemas that a schema refers to, and those that these refer to: all in the order in which they can be parsed."""

from collections.abc import Sequence
from typing import Final

import msgspec

from lakestream.errors import RegistryProblem, RegistryRefused
from lakestream.schemas.registry.formats.format import Dependency, invalid
from lakestream.schemas.registry.model import Reference, Schema, Subject, parse_subject
from lakestream.schemas.registry.storage.draft import Draft
from lakestream.schemas.registry.storage.rows import SubjectRow, schema_key, subject_key

LATEST: Final = -1
MOST_REFERENCES: Final = 1000


class Resolved(msgspec.Struct, frozen=True):
    """`references`: with the versions that they mean now. `rows`: the subjects that they name, as they are."""

    references: tuple[Reference, ...]
    dependencies: tuple[Dependency, ...]
    rows: dict[str, SubjectRow]


async def resolve(draft: Draft, context: str, references: Sequence[Reference]) -> Resolved:
    """`context`: of those whose subject says none. Raises `RegistryRefused`."""
    found: dict[str, str] = {}
    pinned: list[Reference] = []
    rows: dict[str, SubjectRow] = {}
    for reference in references:
        subject = parse_subject(reference.subject, context)
        key = subject_key(subject)
        row = await draft.get(key, SubjectRow)
        number, schema = await _referred(draft, subject, reference, row)
        if row is not None:
            rows[key] = row
        pinned.append(msgspec.structs.replace(reference, version=number))
        await _collect(draft, subject.context, reference.name, schema, found, ())
    names = [each.name for each in references]
    if len(set(names)) < len(names):
        raise invalid("two references have the same name")
    return Resolved(tuple(pinned), tuple(Dependency(*each) for each in found.items()), rows)


async def _referred(draft: Draft, subject: Subject, reference: Reference, row: SubjectRow | None) -> tuple[int, Schema]:
    live = [] if row is None else row.live
    wanted = [each for each in live if reference.version in (LATEST, each.number)]
    if not wanted:
        raise invalid(
            f"the reference {reference.name!r} names version {reference.version} of subject {subject}, which is not"
            " there: register it first"
        )
    schema = await draft.get(schema_key(subject.context, wanted[-1].id), Schema)
    if schema is None:
        raise RegistryRefused(RegistryProblem.UNKNOWN_SCHEMA, f"Schema {wanted[-1].id} not found")
    return wanted[-1].number, schema


async def _collect(
    draft: Draft, context: str, name: str, schema: Schema, found: dict[str, str], path: tuple[str, ...]
) -> None:
    """A schema is registered after those that it refers to, so there is no circle; one that damage or an import made
    is refused."""
    if found.get(name) == schema.text:
        return
    if name in path:
        raise invalid(f"its references go in a circle: {' → '.join((*path, name))}")
    if len(found) >= MOST_REFERENCES:
        raise invalid(f"it needs more than {MOST_REFERENCES} other schemas")
    for each in schema.references:
        subject = parse_subject(each.subject, context)
        row = await draft.get(subject_key(subject), SubjectRow)
        # A version that was deleted since is still what the schema refers to.
        id = next((version.id for version in (row.versions if row else ()) if version.number == each.version), None)
        nested = None if id is None else await draft.get(schema_key(subject.context, id), Schema)
        if nested is None:
            raise invalid(
                f"{name!r} refers to version {each.version} of subject {subject}, which is not there any more"
            )
        await _collect(draft, subject.context, each.name, nested, found, (*path, name))
    if found.setdefault(name, schema.text) != schema.text:
        raise invalid(f"two different schemas are referred to as {name!r}")


async def dependencies_of(draft: Draft, context: str, schema: Schema) -> tuple[Dependency, ...]:
    """Of a schema that is registered."""
    found: dict[str, str] = {}
    await _collect(draft, context, "", schema, found, ())
    return tuple(Dependency(name, text) for name, text in found.items() if name)
