"""Schemas become versions of subjects, if those that are there allow it.

An id is reserved, its schema put into the bucket, and only then everything else is written at once. So an id that
anybody has seen has its schema in the bucket; one that was reserved in vain is a gap, and is never given again.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from lakestream.errors import Conflict, RegistryProblem, RegistryRefused
from lakestream.metadata.store import Store
from lakestream.schemas.registry.formats.format import Dependency, ParsedSchema
from lakestream.schemas.registry.model import Level, Mode, Registered, Schema, Subject
from lakestream.schemas.registry.parsing import Parser
from lakestream.schemas.registry.references import Resolved, dependencies_of, resolve
from lakestream.schemas.registry.scopes import check_writable, effective
from lakestream.schemas.registry.storage.draft import Draft
from lakestream.schemas.registry.storage.kept import KeptSchemas
from lakestream.schemas.registry.storage.rows import (
    ContextRow,
    SchemaId,
    SubjectRow,
    VersionRow,
    content_key,
    context_key,
    ids_key,
    indexes,
    schema_key,
    subject_key,
)

FIRST_ID: Final = 1
MOST_ID: Final = (1 << 31) - 1


class PreparedSchema(msgspec.Struct, frozen=True):
    """A schema as it would be stored."""

    schema: Schema
    parsed: ParsedSchema
    resolved: Resolved


async def prepare(draft: Draft, parser: Parser, context: str, schema: Schema, *, normalize: bool) -> PreparedSchema:
    """Raises `RegistryRefused`."""
    resolved = await resolve(draft, context, schema.references)
    parsed = await parser.parse(schema.type, schema.text, resolved.dependencies)
    text = parsed.normalized() if normalize else parsed.text
    stored = msgspec.structs.replace(schema, text=text, references=resolved.references)
    return PreparedSchema(stored, parsed, resolved)


async def incompatibilities(
    draft: Draft,
    parser: Parser,
    candidate: PreparedSchema,
    subject: Subject,
    earlier: Sequence[VersionRow],
    level: Level,
) -> list[str]:
    """`earlier`: those to compare with, in order."""
    if level is Level.NONE or not earlier:
        return []
    found: list[str] = []
    for version in reversed(earlier if level.is_transitive else earlier[-1:]):
        told = await _compared(draft, parser, candidate, SchemaId(subject.context, version.id), level)
        found += [f"version {version.number}: {each}" for each in told]
    return found


async def _compared(
    draft: Draft, parser: Parser, candidate: PreparedSchema, place: SchemaId, level: Level
) -> list[str]:
    other = await draft.get(schema_key(place.context, place.id), Schema)
    if other is None:
        raise RegistryRefused(RegistryProblem.UNKNOWN_SCHEMA, f"Schema {place.id} not found")
    if other.type is not candidate.schema.type:
        return [f"it is of type {other.type}, and the new schema of type {candidate.schema.type}"]
    needed: Sequence[Dependency] = await dependencies_of(draft, place.context, other)
    return await parser.compare(level, candidate.parsed, await parser.parse(other.type, other.text, needed))


class Registering:
    def __init__(self, store: Store, kept: KeptSchemas, parser: Parser) -> None:
        self._store = store
        self._kept = kept
        self._parser = parser

    async def attempt(
        self,
        draft: Draft,
        subject: Subject,
        schema: Schema,
        *,
        normalize: bool | None,
        id: int | None,
        version: int | None,
        reserved: dict[str, int],
    ) -> Registered:
        """Fills the draft, unless the schema is there already. `reserved`: ids by digest that earlier attempts have
        reserved, and this one too."""
        now = await effective(draft, subject)
        check_writable(subject, now.mode)
        candidate = await prepare(
            draft, self._parser, subject.context, schema, normalize=now.normalize if normalize is None else normalize
        )
        row = await draft.get(subject_key(subject), SubjectRow) or SubjectRow()
        known = await draft.get(content_key(subject.context, candidate.schema.digest()), int)
        present = next((each for each in row.live if each.id == known), None)
        if present is not None:
            _check_same(id, present.id)
            return Registered(subject, present.number, present.id, candidate.schema)
        _check_importing(subject, now.mode, id)
        if now.mode is not Mode.IMPORT:
            found = await incompatibilities(draft, self._parser, candidate, subject, row.live, now.level)
            if found:
                raise RegistryRefused(
                    RegistryProblem.INCOMPATIBLE,
                    f'Schema being registered is incompatible with an earlier schema for subject "{subject}",'
                    f" details: [{'; '.join(found)}] (compatibility: {now.level})",
                )
        chosen = await self._id(draft, subject.context, candidate.schema, known, id, reserved)
        number = _next_version(row, version if now.mode is Mode.IMPORT else None)
        changed = (*row.versions, VersionRow(number, chosen))
        draft.keep(
            subject_key(subject),
            msgspec.structs.replace(row, versions=tuple(sorted(changed, key=lambda each: each.number))),
        )
        if await draft.get(context_key(subject.context), ContextRow) is None:
            draft.keep(context_key(subject.context), ContextRow())
        for key, value in indexes(subject, chosen, candidate.schema, is_live=True):
            draft.put(key, value)
        # Whoever deletes what it refers to meanwhile finds the row rewritten, and looks again.
        for key, other in candidate.resolved.rows.items():
            if key != subject_key(subject):
                draft.put(key, other)
        return Registered(subject, number, chosen, candidate.schema)

    async def _id(
        self, draft: Draft, context: str, schema: Schema, known: int | None, given: int | None, reserved: dict[str, int]
    ) -> int:
        """With its schema in the bucket and in the draft, if it is new."""
        if known is not None:
            _check_same(given, known)
            return known
        if given is None:
            return await self._fresh_id(draft, context, schema, reserved)
        if not 0 < given < MOST_ID or await draft.get(schema_key(context, given), Schema) is not None:
            raise _taken(given)
        try:
            await self._kept.keep_schema(SchemaId(context, given), schema)
        except Conflict as error:
            raise _taken(given) from error
        following = await draft.get(ids_key(context), int) or FIRST_ID
        if given >= following:
            draft.put(ids_key(context), given + 1)
        draft.put(schema_key(context, given), schema)
        return given

    async def _fresh_id(self, draft: Draft, context: str, schema: Schema, reserved: dict[str, int]) -> int:
        digest = schema.digest()
        while digest not in reserved:
            id = await self._reserve(context)
            try:
                await self._kept.keep_schema(SchemaId(context, id), schema)
                reserved[digest] = id
            except Conflict:
                # Another schema had it, in a life that the store does not remember.
                continue
        draft.put(schema_key(context, reserved[digest]), schema)
        return reserved[digest]

    async def _reserve(self, context: str) -> int:
        while True:
            counting = Draft(self._store)
            id = await counting.get(ids_key(context), int) or FIRST_ID
            counting.put(ids_key(context), id + 1)
            if await counting.commit():
                return id


def _check_same(given: int | None, present: int) -> None:
    if given is not None and given != present:
        raise RegistryRefused(
            RegistryProblem.ID_DIFFERS, f"Schema already registered with id {present} instead of input id {given}"
        )


def _check_importing(subject: Subject, mode: Mode, id: int | None) -> None:
    if id is not None and mode is not Mode.IMPORT:
        raise RegistryRefused(RegistryProblem.NOT_PERMITTED, f"Subject {subject} is not in import mode")
    if id is None and mode is Mode.IMPORT:
        raise RegistryRefused(
            RegistryProblem.NOT_PERMITTED, f"Subject {subject} is in import mode: say which id the schema has"
        )


def _taken(id: int) -> RegistryRefused:
    return RegistryRefused(
        RegistryProblem.NOT_PERMITTED, f"Overwrite new schema with id {id} is not permitted: it is another schema's"
    )


def _next_version(row: SubjectRow, wanted: int | None) -> int:
    last = max((each.number for each in row.versions), default=0)
    if wanted is None or wanted <= 0:
        return last + 1
    if any(each.number == wanted for each in row.versions):
        raise RegistryRefused(RegistryProblem.NOT_PERMITTED, f"Version {wanted} is there already")
    return wanted
