"""Shapes of typed tables: how a schema makes one out of another."""

from collections.abc import Sequence
from typing import Final

import msgspec

from lakestream.errors import InvalidSchema
from lakestream.schemas.avro import parse_avro
from lakestream.schemas.mapping import FIRST_VALUE_ID, ROOT, columns_of, merged
from lakestream.table.shape import SYSTEM_COLUMNS, SYSTEM_NAMES, TableColumn, TableShape, ValueSchema

MAX_SCHEMA_BYTES: Final = 256 * 1024
"""Of all schemas of a table together: they are in its metadata, which every commit writes."""


def text_shape(codec: str) -> TableShape:
    """Of values that are text as a whole: `codecs.texts`. They have no schema."""
    column = TableColumn(FIRST_VALUE_ID, ROOT, "string")
    return TableShape(columns=(column, *SYSTEM_COLUMNS), codec=codec)


def with_schema(shape: TableShape, schema: ValueSchema, last_id: int = 0) -> TableShape:
    """The shape with the schema, and the columns that its values need, under ids beyond `last_id`. One whose values
    cannot be columns of this table is known to it with the reason, and they stay bytes."""
    try:
        _check_size([*shape.schemas, schema])
        parsed = parse_avro(schema.text, dict(schema.references))
        columns = merged(shape.columns, columns_of(parsed), last_id)
    except InvalidSchema as error:
        refused = ValueSchema(schema.schema_id, "", trouble=str(error))
        return msgspec.structs.replace(shape, schemas=(*shape.schemas, refused))
    ordered = sorted(columns, key=lambda column: column.name in SYSTEM_NAMES)
    return msgspec.structs.replace(shape, columns=tuple(ordered), schemas=(*shape.schemas, schema))


def _check_size(schemas: Sequence[ValueSchema]) -> None:
    size_bytes = sum(
        len(text.encode()) for each in schemas for text in (each.text, *(other for _, other in each.references))
    )
    if size_bytes > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schemas of the table have {size_bytes} bytes, more than {MAX_SCHEMA_BYTES}")
