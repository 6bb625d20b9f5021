"""Shapes of typed tables: how a schema makes one out of another."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from lakestream.errors import InvalidSchema
from lakestream.schemas.avro import parse_avro
from lakestream.schemas.descriptors import compiled_descriptors
from lakestream.schemas.json import parse_json_schema
from lakestream.schemas.mapping import FIRST_VALUE_ID, ROOT, avro, json, merged, protobuf
from lakestream.schemas.mapping.json import FORMAT
from lakestream.schemas.protobuf import parse_descriptors
from lakestream.table.shape import SYSTEM_COLUMNS, SYSTEM_NAMES, TableColumn, TableShape, ValueSchema

MAX_SCHEMA_BYTES: Final = 256 * 1024
"""Of all schemas of a table together: they are in its metadata, which every commit writes."""


def text_shape(codec: str) -> TableShape:
    """Of values that are text as a whole: `codecs.texts`. They have no schema."""
    column = TableColumn(FIRST_VALUE_ID, ROOT, "string")
    return TableShape(columns=(column, *SYSTEM_COLUMNS), codec=codec)


def with_schema(shape: TableShape, schema: ValueSchema, last_id: int = 0) -> TableShape:
    """The shape with the schema, as a registry has it, and the columns that its values need, under ids beyond
    `last_id`. One whose values cannot be columns of this table is known to it with the reason, and they stay bytes.
    Blocking, and raises `Unavailable`, as `kept_schema`."""
    return with_kept_schema(shape, kept_schema(schema), last_id)


def kept_schema(schema: ValueSchema) -> ValueSchema:
    """The schema as tables keep it: one of Protobuf as compiled descriptors. Blocking. Raises `Unavailable` if the
    compiler does not answer; what is no schema has a trouble."""
    if schema.format != "PROTOBUF" or schema.trouble:
        return schema
    try:
        descriptors = compiled_descriptors(schema.text, schema.references)
    except InvalidSchema as error:
        return msgspec.structs.replace(schema, text="", references=(), trouble=str(error))
    return msgspec.structs.replace(schema, text=descriptors, references=())


def with_kept_schema(shape: TableShape, schema: ValueSchema, last_id: int = 0) -> TableShape:
    """The same for a schema as tables keep it."""
    try:
        _check_format(shape, schema)
        _check_size([*shape.schemas, schema])
        columns = _with_format(shape, _COLUMNS[schema.format](shape, schema), last_id)
    except InvalidSchema as error:
        refused = ValueSchema(schema.schema_id, "", trouble=str(error), format=schema.format)
        return msgspec.structs.replace(shape, schemas=(*shape.schemas, refused))
    ordered = sorted(columns, key=lambda column: column.name in SYSTEM_NAMES)
    return msgspec.structs.replace(shape, columns=tuple(ordered), schemas=(*shape.schemas, schema))


def _with_format(shape: TableShape, wanted: Sequence[TableColumn], last_id: int) -> tuple[TableColumn, ...]:
    """The merged columns, with the one that tells how values were written if they are JSON. No field of a schema is
    that one, whatever its name."""
    if format_of(shape) != "JSON":
        return merged(shape.columns, wanted, last_id)
    own = [column for column in shape.columns if column.content == FORMAT.content]
    others = [column for column in shape.columns if column.content != FORMAT.content]
    columns = merged(others, wanted, max(last_id, *(column.field_id for column in own), 0))
    if not own:
        [added] = merged((), [FORMAT], max(last_id, *map(_last_id, columns)))
        own = [msgspec.structs.replace(added, name=FORMAT.name, source="")]
    return (*columns, *own)


def _last_id(column: TableColumn) -> int:
    """Of it and those below."""
    return max(column.field_id, *map(_last_id, column.below), 0)


def with_plain_schema(shape: TableShape, schema_id: int) -> TableShape:
    """The shape whose values without framing are of this schema, which it has: what a codec of plain values reads
    from now on. Rows that are there keep theirs."""
    return msgspec.structs.replace(shape, plain_schema_id=schema_id)


def format_of(shape: TableShape) -> str:
    """The format of the schemas of its values: the first word of its codec's name."""
    return shape.codec.partition("-")[0].upper()


def field_columns(shape: TableShape) -> tuple[TableColumn, ...]:
    """Those of the value's fields: not the one that tells how values were written."""
    return tuple(column for column in shape.value_columns if column.content != FORMAT.content)


def _avro_columns(_: TableShape, schema: ValueSchema) -> tuple[TableColumn, ...]:
    return avro.columns_of(parse_avro(schema.text, dict(schema.references)))


def _json_columns(_: TableShape, schema: ValueSchema) -> tuple[TableColumn, ...]:
    return json.columns_of(parse_json_schema(schema.text, dict(schema.references)))


def _protobuf_columns(shape: TableShape, schema: ValueSchema) -> tuple[TableColumn, ...]:
    first = next((each for each in shape.schemas if not each.trouble), schema)
    known = {column.source for column in shape.value_columns}
    flat = protobuf.flat_message(parse_descriptors(first.text), first.message)
    return protobuf.columns_of(parse_descriptors(schema.text), flat, known)


_COLUMNS: Final[Mapping[str, Callable[[TableShape, ValueSchema], tuple[TableColumn, ...]]]] = {
    "AVRO": _avro_columns,
    "JSON": _json_columns,
    "PROTOBUF": _protobuf_columns,
}
"""What a schema asks for, by its format, in a table of this shape."""


def _check_format(shape: TableShape, schema: ValueSchema) -> None:
    if schema.trouble:
        raise InvalidSchema(schema.trouble)
    if schema.format not in _COLUMNS:
        raise InvalidSchema(f"values of a schema in {schema.format} have no columns in this version")
    if schema.format != format_of(shape):
        raise InvalidSchema(f"the schema is in {schema.format}, and the table has values in {format_of(shape)}")


def _check_size(schemas: Sequence[ValueSchema]) -> None:
    size_bytes = sum(
        len(text.encode()) for each in schemas for text in (each.text, *(other for _, other in each.references))
    )
    if size_bytes > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schemas of the table have {size_bytes} bytes, more than {MAX_SCHEMA_BYTES}")
