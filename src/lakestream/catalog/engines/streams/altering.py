"""ALTER TABLE of a stream's columns: the next version of the subject, and the table in the shape that it gives.

The version comes first: whoever finds it without the table goes on as after any registration, and whoever alters the
table again registers the same.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from lakestream.access import Principal
from lakestream.catalog.engines.changes import apply_updates
from lakestream.catalog.engines.streams.asked import asked_columns, same_columns
from lakestream.catalog.rules.evolving import evolved_schema, own_names
from lakestream.catalog.staging import Current, said_shape
from lakestream.errors import InvalidSchema, RegistryProblem, RegistryRefused, RequestError, TableRefused
from lakestream.metadata.topics.list import Topic
from lakestream.metadata.topics.option_list import KEY
from lakestream.metadata.topics.tables import value_subject
from lakestream.runtime import Runtime
from lakestream.schemas.deriving import edited
from lakestream.schemas.growing import BY_ID, fits, grown
from lakestream.schemas.registry.model import Registered, Subject, parse_subject
from lakestream.schemas.registry.model import Schema as RegistrySchema
from lakestream.schemas.registry.reading import LATEST
from lakestream.schemas.registry.registry import SchemaRegistry
from lakestream.schemas.shapes import field_columns, with_plain_schema
from lakestream.table.schema import SHAPE_PROPERTY, shape_of
from lakestream.table.shape import SYSTEM_NAMES, TableColumn, TableShape, ValueSchema

_PROVISIONAL: Final = -1
"""A schema's id before it is registered."""


class Altered(NamedTuple):
    """`shape_text`: of the shape that the updates were made for, if they change it. `key`: the setting that follows
    columns that are renamed; empty: it stays."""

    updates: Sequence[TableUpdate]
    shape_text: str | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class _Base:
    """A table with the columns of its subject's latest version."""

    metadata: TableMetadata
    shape: TableShape
    subject: Subject
    latest: ValueSchema
    ids: frozenset[int]
    """Of the columns that the engine knew."""
    value_format: str

    def grown(self, shape: TableShape, schema: ValueSchema) -> TableShape:
        """With the schema, which values without framing are of then. Blocking."""
        taken = own_names(self.metadata.schema(), self.shape)
        made = grown(shape, [schema], self.value_format, self.metadata.last_column_id, taken)
        return made if self.value_format == BY_ID else with_plain_schema(made, schema.schema_id)


class ColumnChanges:
    def __init__(self, registry: SchemaRegistry | None, runtime: Runtime) -> None:
        self._registry = registry
        self._runtime = runtime

    async def altered(
        self, principal: Principal, topic: Topic, current: Current, updates: Sequence[TableUpdate]
    ) -> Altered:
        """What the commit shall be instead. If its columns are other than the table's, the subject has the version that
        says so when this returns. Raises `TableRefused`, `RequestError` with a sentence: nothing has changed then."""
        if not any(isinstance(update, AddSchemaUpdate | SetCurrentSchemaUpdate) for update in updates):
            return Altered(updates)
        shape = shape_of(current.metadata.properties)
        if not fits(shape.codec, topic.options.value_format) or all(each.trouble for each in shape.schemas):
            return Altered(updates)
        asked = apply_updates(current.metadata, list(updates), None, validate=True)
        after = _value_columns(asked.schema(), current.metadata, shape)
        if _outline(after) == _outline(field_columns(shape)):
            return Altered(updates)
        if any(_says_shape(update) for update in updates):
            raise TableRefused(f"{SHAPE_PROPERTY} says which columns hold the stream: leave it out of the commit")
        if not after:
            raise InvalidSchema("a stream needs a column for its values: drop the table instead")
        base, version = await self._next(principal, topic, current, shape, after)
        made = await self._runtime.off_loop(lambda: _shaped(base, after, version))
        others = [update for update in updates if not isinstance(update, AddSchemaUpdate | SetCurrentSchemaUpdate)]
        kept = asked.model_copy(update={"schemas": [*asked.schemas, _known(asked.schema(), current.metadata.schema())]})
        kept = kept.model_copy(update={"current_schema_id": kept.schemas[-1].schema_id})
        schema = _commented(evolved_schema(kept, made, keeps_order=False), after, asked.schema())
        changed: list[TableUpdate] = [
            AddSchemaUpdate.model_validate({"schema": schema}),
            SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
            *said_shape(made),
            *others,
        ]
        return Altered(changed, current.metadata.properties.get(SHAPE_PROPERTY), _key(topic, shape, after))

    async def _next(
        self,
        principal: Principal,
        topic: Topic,
        current: Current,
        shape: TableShape,
        after: Sequence[TableColumn],
    ) -> tuple[_Base, ValueSchema]:
        """The version that says what the columns are then, registered, and what it is made from."""
        if self._registry is None:
            raise TableRefused("columns of the value change with its schema: register the next version of the subject")
        subject = parse_subject(value_subject(topic.name, topic.options.value_subject))
        latest = await self._registry.version(principal, subject, LATEST)
        base = await self._base(topic, current, shape, latest)
        _check_names(shape, after)

        async def next_text(base: _Base) -> str:
            return await self._runtime.off_loop(lambda: _next_text(base, field_columns(shape), after))

        if all(each.schema_id != latest.id for each in shape.schemas):
            # The same statement may have stopped after it had registered the version.
            with suppress(RequestError):
                before = await self._registry.version(principal, subject, latest.version - 1)
                earlier = await self._base(topic, current, shape, before)
                asked = RegistrySchema(latest.schema.type, await next_text(earlier))
                if (await self._registry.lookup(principal, subject, asked)).id == latest.id:
                    return earlier, base.latest
        text = await next_text(base)
        if text == base.latest.text:
            return base, base.latest
        schema_id = await self._register(principal, base, text)
        return base, msgspec.structs.replace(base.latest, text=text, schema_id=schema_id)

    async def _base(self, topic: Topic, current: Current, shape: TableShape, registered: Registered) -> _Base:
        subject = registered.subject
        if registered.schema.references:
            raise TableRefused(
                f"the latest schema of {subject} refers to others: register its next version, and the table follows"
            )
        latest = ValueSchema(registered.id, registered.schema.text, format=registered.schema.type.value)
        ids = frozenset(each.field_id for each in shape.columns)
        base = _Base(current.metadata, shape, subject, latest, ids, topic.options.value_format)
        known = await self._runtime.off_loop(lambda: base.grown(shape, latest))
        trouble = next((each.trouble for each in known.schemas if each.schema_id == latest.schema_id), "")
        if trouble:
            raise TableRefused(f"the latest schema of {subject} cannot be the table's columns: {trouble}")
        return replace(base, shape=known)

    async def _register(self, principal: Principal, base: _Base, text: str) -> int:
        assert self._registry is not None
        kind = (await self._registry.version(principal, base.subject, LATEST)).schema.type
        schema = RegistrySchema(kind, text)
        found = await self._registry.check(principal, base.subject, schema)
        if found:
            raise RegistryRefused(
                RegistryProblem.INCOMPATIBLE,
                f"the table cannot be altered so: the schema of {base.subject} would not get along with earlier ones"
                f" ({'; '.join(found)})",
            )
        return (await self._registry.register(principal, base.subject, schema)).id


def _next_text(base: _Base, before: Sequence[TableColumn], after: Sequence[TableColumn]) -> str:
    """Of the next version, which gives the table just the columns that it shall have. Blocking."""
    text = edited(base.latest.format, base.latest.text, before, after)
    _shaped(base, after, msgspec.structs.replace(base.latest, text=text, schema_id=_PROVISIONAL))
    return text


def _value_columns(wanted: Schema, metadata: TableMetadata, shape: TableShape) -> tuple[TableColumn, ...]:
    """Those of the value, as the engine wants them; the log's and the owner's stay out of it."""
    value_ids = {column.field_id for column in field_columns(shape)}
    others = {field.field_id for field in metadata.schema().fields if field.field_id not in value_ids}
    # What is wrong with a column of the log is told by the rules of tables.
    fields = [
        field for field in wanted.fields if field.field_id not in others and field.name.lower() not in SYSTEM_NAMES
    ]
    return asked_columns(Schema(*fields))


def _known(wanted: Schema, present: Schema) -> Schema:
    """Without what is new: that gets ids in an order of our own."""

    def left(fields: Sequence[NestedField]) -> list[NestedField]:
        return [_with_type(field, kind(field.field_type)) for field in fields if field.field_id in present.field_ids]

    def kind(found: IcebergType) -> IcebergType:
        if isinstance(found, StructType):
            return StructType(*left(found.fields))
        if isinstance(found, ListType):
            return found.model_copy(update={"element_field": _with_type(found.element_field, kind(found.element_type))})
        if isinstance(found, MapType):
            return found.model_copy(update={"value_field": _with_type(found.value_field, kind(found.value_type))})
        return found

    return Schema(*left(wanted.fields), schema_id=wanted.schema_id + 1)


def _with_type(field: NestedField, kind: IcebergType) -> NestedField:
    return field.model_copy(update={"field_type": kind})


def _commented(schema: Schema, after: Sequence[TableColumn], wanted: Schema) -> Schema:
    """With the comments on columns that are new; those inside of them are not kept."""
    docs = {column.name: wanted.find_field(column.field_id).doc for column in after}
    fields = [
        field.model_copy(update={"doc": docs[field.name]}) if docs.get(field.name) else field for field in schema.fields
    ]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _outline(columns: Sequence[TableColumn]) -> list[object]:
    """Ids, names, types and order."""
    return [
        (column.field_id, column.name, column.kind, column.precision, column.scale, _outline(column.below))
        for column in columns
    ]


def _says_shape(update: TableUpdate) -> bool:
    names: Sequence[str] | Mapping[str, str] = ()
    if isinstance(update, SetPropertiesUpdate):
        names = update.updates
    elif isinstance(update, RemovePropertiesUpdate):
        names = update.removals
    return SHAPE_PROPERTY in names


def _check_names(shape: TableShape, after: Sequence[TableColumn]) -> None:
    former = {name.lower(): column for column in shape.value_columns for name in column.former}
    gone = {column.name.lower(): column for column in shape.value_columns}
    for column in after:
        other = former.get(column.name.lower()) or gone.get(column.name.lower())
        if other is not None and other.field_id != column.field_id:
            raise InvalidSchema(
                f"{column.name} is what older records call the column {other.name}: choose a name that was not used yet"
            )


def _shaped(base: _Base, after: Sequence[TableColumn], version: ValueSchema) -> TableShape:
    """The table with this version, whose columns are called and ordered as the engine wants them. Those that it dropped
    stay, behind the others: older records are in them."""
    names = {column.field_id: column.name for column in after if column.field_id in base.ids}
    renamed = tuple(_named(column, names.get(column.field_id, column.name)) for column in base.shape.columns)
    shape = msgspec.structs.replace(base.shape, columns=renamed)
    made = base.grown(shape, version)
    trouble = next((each.trouble for each in made.schemas if each.schema_id == version.schema_id), "")
    if trouble:
        raise InvalidSchema(trouble)
    place = {column.name: number for number, column in enumerate(after)}
    values = sorted(made.value_columns, key=lambda column: place.get(column.name, len(place)))
    found = same_columns(after, values[: len(after)])
    if found:
        raise RequestError(f"the table cannot be altered so: {found}")
    system = [column for column in made.columns if column.name in SYSTEM_NAMES]
    return msgspec.structs.replace(made, columns=(*values, *system))


def _named(column: TableColumn, name: str) -> TableColumn:
    if name == column.name:
        return column
    former = tuple(each for each in dict.fromkeys((*column.former, column.name)) if each != name)
    return msgspec.structs.replace(column, name=name, former=former)


def _key(topic: Topic, shape: TableShape, after: Sequence[TableColumn]) -> str:
    names = {name: column.field_id for column in shape.value_columns for name in (*column.former, column.name)}
    now = {column.field_id: column.name for column in after}
    key = topic.configs.get(KEY, "")
    told = ",".join(now.get(names.get(name, -1), name) for name in topic.options.key)
    return "" if told == ",".join(topic.options.key) or not key else told
