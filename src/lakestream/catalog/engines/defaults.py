"""Default values of columns, which PyIceberg forgets when it numbers the columns of a new table. Pure."""

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType


def with_defaults(metadata: TableMetadata, asked: Schema) -> TableMetadata:
    """The metadata of a new table, its columns with the defaults that they were asked for with. The columns of both
    differ in their ids only."""
    [fresh] = metadata.schemas
    fields = _fields(fresh.fields, asked.fields)
    if fields == fresh.fields:
        return metadata
    schema = Schema(*fields, schema_id=fresh.schema_id, identifier_field_ids=fresh.identifier_field_ids)
    return metadata.model_copy(update={"schemas": [schema]})


def _fields(fresh: tuple[NestedField, ...], asked: tuple[NestedField, ...]) -> tuple[NestedField, ...]:
    return tuple(
        field.model_copy(
            update={
                "field_type": _type(field.field_type, wanted.field_type),
                "initial_default": wanted.initial_default,
                "write_default": wanted.write_default,
            }
        )
        for field, wanted in zip(fresh, asked, strict=True)
    )


def _type(fresh: IcebergType, asked: IcebergType) -> IcebergType:
    match fresh, asked:
        case StructType(), StructType():
            return StructType(*_fields(fresh.fields, asked.fields))
        case ListType(), ListType():
            element = _type(fresh.element_type, asked.element_type)
            return ListType(fresh.element_id, element, element_required=fresh.element_required)
        case MapType(), MapType():
            value = _type(fresh.value_type, asked.value_type)
            return MapType(fresh.key_id, fresh.key_type, fresh.value_id, value, value_required=fresh.value_required)
    return fresh
