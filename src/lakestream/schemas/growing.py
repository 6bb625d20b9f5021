"""Shapes that grow with the schemas of their values, by a topic's setting `lakestream.value.format`. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from lakestream.schemas.mapping import FIRST_VALUE_ID, ROOT
from lakestream.schemas.shapes import with_schema
from lakestream.table.shape import SYSTEM_NAMES, TableColumn, TableShape, ValueSchema

RAW_FORMAT: Final = "raw"
BY_ID: Final = "schema_id"
LATEST: Final = "latest"
JSON: Final = "json"
STRING: Final = "string"

MAX_SCHEMAS: Final = 1_000
"""That a shape has or knows the trouble of. Values of any more stay bytes."""

_CODECS: Final = {
    (BY_ID, "AVRO"): "avro-schema-id-1",
    (BY_ID, "PROTOBUF"): "protobuf-schema-id-1",
    (BY_ID, "JSON"): "json-schema-id-1",
    (LATEST, "AVRO"): "avro-plain-1",
    (LATEST, "PROTOBUF"): "protobuf-plain-1",
    (LATEST, "JSON"): "json-plain-1",
    (JSON, "JSON"): "json-plain-1",
    (JSON, ""): "json-text-1",
    (STRING, ""): "text-1",
}
"""What fills the columns of a table by the first schema that makes any: by setting and the schema's format, which is
empty where values need none."""


def fits(codec: str, value_format: str) -> bool:
    """Whether a table with this codec takes values of this format as columns."""
    if not codec or value_format == RAW_FORMAT:
        return False
    wanted = {wanted for (wanted, _), name in _CODECS.items() if name == codec}
    return not wanted or value_format in wanted


def codec_for(value_format: str, schemas: str) -> str | None:
    """Of a table that is to have columns by schemas of that format; None: it cannot."""
    return _CODECS.get((value_format, schemas)) if schemas else None


def is_text(codec: str) -> bool:
    """Whether its values need no schema."""
    return any(name == codec for (_, schemas), name in _CODECS.items() if not schemas)


def settled(
    shape: TableShape, latest: ValueSchema | None, value_format: str, last_id: int, taken: frozenset[str]
) -> TableShape:
    """The shape that a table needs whatever its values are, if this is the latest schema of their subject. See
    `grown`."""
    if shape.codec and not fits(shape.codec, value_format):
        return shape
    text_codec = _CODECS.get((value_format, ""))
    if text_codec is not None and (
        shape.codec == text_codec or (value_format, latest and latest.format) not in _CODECS
    ):
        return shape if shape.codec else _as_text(shape, text_codec, last_id, taken)
    shape = shape if latest is None else grown(shape, [latest], value_format, last_id, taken)
    if value_format == BY_ID or latest is None:
        return shape
    usable = any(each.schema_id == latest.schema_id and not each.trouble for each in shape.schemas)
    return msgspec.structs.replace(shape, plain_schema_id=latest.schema_id if usable else None)


def grown(
    shape: TableShape, schemas: Iterable[ValueSchema], value_format: str, last_id: int, taken: frozenset[str]
) -> TableShape:
    """The shape with these schemas, too; itself if it knows them. New columns have ids beyond `last_id`, and none of
    the names that are `taken` by columns of the table's owner. A schema that cannot be columns here is known with its
    trouble."""
    if shape.codec and not fits(shape.codec, value_format):
        return shape
    known = {each.schema_id for each in shape.schemas}
    for schema in schemas:
        if schema.schema_id not in known and len(shape.schemas) < MAX_SCHEMAS:
            shape = _with(shape, schema, value_format, last_id, taken)
            known.add(schema.schema_id)
    return shape


def _with(shape: TableShape, schema: ValueSchema, value_format: str, last_id: int, taken: frozenset[str]) -> TableShape:
    codec = shape.codec or _CODECS.get((value_format, schema.format))
    if codec is None:
        trouble = f"values with a {schema.format} schema are no columns with lakestream.value.format={value_format}"
        told = ValueSchema(schema.schema_id, "", trouble=trouble, format=schema.format)
        return msgspec.structs.replace(shape, schemas=(*shape.schemas, told))
    found = with_schema(msgspec.structs.replace(shape, codec=codec), schema, last_id)
    if found.schemas[-1].trouble:
        return msgspec.structs.replace(found, codec=shape.codec)
    return msgspec.structs.replace(found, columns=_renamed(found.columns, shape.columns, taken))


def _as_text(shape: TableShape, codec: str, last_id: int, taken: frozenset[str]) -> TableShape:
    """One column has the value as a whole. If the table's owner has one of that name there is none."""
    if any(name.lower() == ROOT for name in taken):
        return shape
    column = TableColumn(max(FIRST_VALUE_ID, last_id + 1), ROOT, "string")
    return msgspec.structs.replace(shape, codec=codec, columns=(column, *shape.columns))


def _renamed(
    columns: Sequence[TableColumn], before: Sequence[TableColumn], taken: frozenset[str]
) -> tuple[TableColumn, ...]:
    """New columns under names that the table's owner has not used. Engines do not tell upper from lower case."""
    old = {column.field_id for column in before}
    names = {column.name.lower() for column in columns}
    used = {name.lower() for name in taken}
    result = []
    for column in columns:
        if column.field_id not in old and column.name not in SYSTEM_NAMES and column.name.lower() in used:
            number = 2
            while f"{column.name}_{number}".lower() in names | used:
                number += 1
            source = column.source or column.name
            column = msgspec.structs.replace(column, name=f"{column.name}_{number}", source=source)
            names.add(column.name.lower())
        result.append(column)
    return tuple(result)
