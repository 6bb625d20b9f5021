"""What may become of a table's shape while its topic lives: it grows. Pure."""

from collections.abc import Iterator, Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import Kind, TableColumn, TableShape, ValueSchema, key_shape

_WIDER: frozenset[tuple[Kind, Kind]] = frozenset({("int", "long")})


def check_evolution(before: TableShape, after: TableShape, last_id: int) -> None:
    """Raises ValueError unless rows that were written in the one shape can be read in the other. New columns have ids
    beyond `last_id`, which no column ever had."""
    if before.codec and after.codec != before.codec:
        raise ValueError(f"the codec of a table cannot change from {before.codec} to {after.codec}")
    keys, keys_after = key_shape(before), key_shape(after)
    if keys.codec and keys_after.codec != keys.codec:
        raise ValueError(f"the codec of a table's keys cannot change from {keys.codec} to {keys_after.codec}")
    _check_schemas(before.schemas, after.schemas)
    _check_schemas(keys.schemas, keys_after.schemas)
    _check_columns(before.columns, after.columns)
    ids, old = [*_ids(after.columns)], {*_ids(before.columns)}
    if len(set(ids)) < len(ids) or any(each <= last_id for each in ids if each not in old):
        raise ValueError(f"a new column needs an id of its own, beyond {last_id}")


def _check_schemas(before: Sequence[ValueSchema], after: Sequence[ValueSchema]) -> None:
    kept = set(after)
    lost = [schema.schema_id for schema in before if schema not in kept]
    if lost:
        raise ValueError(f"the table would forget its schemas {lost}")
    numbers = [schema.schema_id for schema in after]
    if len(set(numbers)) < len(numbers):
        raise ValueError("a schema is in the table twice")


def _check_columns(before: Sequence[TableColumn], after: Sequence[TableColumn]) -> None:
    found = {column.field_id: column for column in after}
    for old in before:
        new = found.get(old.field_id)
        if new is None or (new.source, new.is_required) != (old.source, old.is_required) or not _goes_on(old, new):
            raise ValueError(f"column {old.name} of the table would be lost or renamed")
        same = (new.scale, new.content) == (old.scale, old.content) and new.precision >= old.precision
        if not same or (new.kind != old.kind and (old.kind, new.kind) not in _WIDER):
            raise ValueError(f"column {old.name} of the table would become another type than {old.kind}")
        _check_columns(old.below, new.below)


def _goes_on(old: TableColumn, new: TableColumn) -> bool:
    """Under the names that it had: files have it by those."""
    return {old.name, *old.former} <= {new.name, *new.former}


def _ids(columns: Sequence[TableColumn]) -> Iterator[int]:
    for column in columns:
        yield column.field_id
        yield from _ids(column.below)


def evolved_schema(metadata: TableMetadata, shape: TableShape, *, keeps_order: bool) -> Schema:
    """The columns of the shape, and behind them those that the table's owner has added, under a number that is free.
    Comments stay, and columns of the log that have become optional stay so. With `keeps_order` new columns come last of
    all: a Metastore wants it so."""
    present = metadata.schema()
    free = max(each.schema_id for each in metadata.schemas) + 1
    said = {field_id: doc for field_id in present.field_ids if (doc := present.find_field(field_id).doc)}
    wanted = iceberg_schema(shape)
    ours = {field.field_id for field in wanted.fields}
    fields = [_as_present(_with_doc(field, said), present) for field in wanted.fields]
    own = [field for field in present.fields if field.field_id not in ours]
    fields += own
    if keeps_order:
        places = {field.field_id: place for place, field in enumerate(present.fields)}
        fields.sort(key=lambda field: places.get(field.field_id, len(places)))
    return Schema(*fields, schema_id=free, identifier_field_ids=present.identifier_field_ids)


def _as_present(field: NestedField, present: Schema) -> NestedField:
    found = present.find_field(field.field_id) if field.field_id in present.field_ids else field
    return field if found.required or not field.required else field.model_copy(update={"required": False})


def own_names(present: Schema, shape: TableShape) -> frozenset[str]:
    """Of the columns that the table's owner has added."""
    ours = {column.field_id for column in shape.columns}
    return frozenset(field.name for field in present.fields if field.field_id not in ours)


def _with_doc(field: NestedField, said: dict[int, str]) -> NestedField:
    inner = _type_with_docs(field.field_type, said)
    return NestedField(field.field_id, field.name, inner, required=field.required, doc=said.get(field.field_id))


def _type_with_docs(kind: IcebergType, said: dict[int, str]) -> IcebergType:
    if isinstance(kind, StructType):
        return StructType(*(_with_doc(field, said) for field in kind.fields))
    if isinstance(kind, ListType):
        return ListType(kind.element_id, _type_with_docs(kind.element_type, said), kind.element_required)
    if isinstance(kind, MapType):
        value = _type_with_docs(kind.value_type, said)
        return MapType(kind.key_id, kind.key_type, kind.value_id, value, kind.value_required)
    return kind
