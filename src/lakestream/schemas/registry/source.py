"""The schemas of our own registry, read from the metadata store. Nobody is asked who they are: this is for the log and
the pipeline, whose topics' settings name the subject."""

from lakestream.errors import RegistryRefused, RegistryUnavailable, Unavailable
from lakestream.metadata.store import Store
from lakestream.schemas.registry.model import Schema, Subject, parse_subject
from lakestream.schemas.registry.references import dependencies_of
from lakestream.schemas.registry.storage.draft import Draft
from lakestream.schemas.registry.storage.rows import SubjectRow, schema_key, subject_key
from lakestream.schemas.source import SubjectVersion
from lakestream.table.shape import ValueSchema


class RegistrySource:
    """Implements `SchemaSource`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        row = await self._row(parse_subject(subject))
        return tuple(SubjectVersion(each.number, each.id, each.is_deleted) for each in row.versions)

    async def latest(self, subject: str) -> ValueSchema | None:
        found = parse_subject(subject)
        live = (await self._row(found)).live
        return await self._schema(found.context, live[-1].id) if live else None

    async def by_id(self, schema_id: int, subject: str) -> ValueSchema | None:
        return await self._schema(parse_subject(subject).context, schema_id)

    async def _row(self, subject: Subject) -> SubjectRow:
        try:
            return await Draft(self._store).get(subject_key(subject), SubjectRow) or SubjectRow()
        except Unavailable as error:
            raise _unavailable(error) from error

    async def _schema(self, context: str, schema_id: int) -> ValueSchema | None:
        try:
            return await _read(Draft(self._store), context, schema_id)
        except Unavailable as error:
            raise _unavailable(error) from error


async def _read(draft: Draft, context: str, schema_id: int) -> ValueSchema | None:
    schema = await draft.get(schema_key(context, schema_id), Schema)
    if schema is None:
        return None
    try:
        needed = await dependencies_of(draft, context, schema)
    except RegistryRefused as error:
        told = f"what it refers to cannot be found: {error}"
        return ValueSchema(schema_id, "", trouble=told, format=schema.type.value)
    references = tuple((each.name, each.text) for each in needed)
    return ValueSchema(schema_id, schema.text, references, format=schema.type.value)


def _unavailable(error: Unavailable) -> RegistryUnavailable:
    return RegistryUnavailable(f"the schema registry cannot be read now: {error}")
