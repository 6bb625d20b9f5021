"""The metadata that the table of a stream begins with when an engine makes it: the value's columns by the schema that
is derived of them, the engine's partitions and order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import NestedField

from lakestream.catalog.engines.streams.asked import asked_columns, same_columns
from lakestream.catalog.engines.streams.wish import StreamWish
from lakestream.errors import InvalidSchema, InvalidSetting, RequestError
from lakestream.metadata.topics.option_list import KEY, VALUE_FORMAT, words
from lakestream.schemas.deriving import derive, record_name
from lakestream.schemas.growing import BY_ID
from lakestream.schemas.shapes import field_columns, with_plain_schema, with_schema
from lakestream.table.parquet.compression import chosen
from lakestream.table.schema import STREAM_SPEC_ID, stream_spec
from lakestream.table.shape import RAW, TableColumn, TableShape, ValueSchema

USER_SPEC_ID: Final = STREAM_SPEC_ID + 1
_FORMAT: Final = "2"


@dataclass(frozen=True, slots=True)
class AskedTable:
    """`text`: of the schema of its values, as the registry has it. `places`: the id of each of the engine's columns in
    the shape."""

    text: str
    schema: Schema
    shape: TableShape
    places: Mapping[int, int]


def asked_table(wish: StreamWish, schema: Schema, schema_id: int) -> AskedTable:
    """The table in the shape that the schema, which is derived, gives it. Blocking. Raises `RequestError` with a
    sentence, `Unavailable` if the compiler of schemas does not answer."""
    asked = asked_columns(schema)
    _check_key(wish, asked)
    text = derive(wish.format, record_name(wish.topic), asked)
    shape = msgspec.structs.replace(RAW, codec=wish.codec)
    shape = with_schema(shape, ValueSchema(schema_id, text, format=wish.format))
    trouble = shape.schemas[-1].trouble
    if trouble:
        raise InvalidSchema(trouble)
    if wish.configs[VALUE_FORMAT] != BY_ID:
        shape = with_plain_schema(shape, schema_id)
    made = field_columns(shape)
    found = same_columns(asked, made)
    if found:
        raise InvalidSchema(f"{found}: values in {wish.format} have no other column for it")
    return AskedTable(text, schema, shape, dict(_places(asked, made)))


def dressed(
    metadata: TableMetadata, table: AskedTable, spec: PartitionSpec | None, order: SortOrder | None, wish: StreamWish
) -> TableMetadata:
    """`metadata`, which a stream's table of that shape begins with, with what else the engine asked for. Raises
    `RequestError` with a sentence."""
    version = wish.properties.get("format-version", _FORMAT)
    if version != _FORMAT:
        raise RequestError(f"a stream's table is in format version {_FORMAT}, not {version}")
    try:
        chosen(wish.properties)
    except ValueError as error:
        raise RequestError(str(error)) from error
    own = {name: value for name, value in wish.properties.items() if name != "format-version"}
    changed = {
        "properties": {**own, **metadata.properties},
        "schemas": [_with_docs(metadata.schema(), table)],
        **_partitioned(metadata, table, spec),
        **_ordered(table, order),
    }
    return metadata.model_copy(update=changed)


def _check_key(wish: StreamWish, asked: Sequence[TableColumn]) -> None:
    known = [column.name for column in asked]
    missing = [name for name in words(wish.configs.get(KEY, "")) if name not in known]
    if missing:
        raise InvalidSetting(f"{KEY} names {', '.join(missing)}, and the table has the columns {', '.join(known)}")


def _places(asked: Sequence[TableColumn], made: Sequence[TableColumn]) -> Iterator[tuple[int, int]]:
    for one, other in zip(asked, made, strict=True):
        yield one.field_id, other.field_id
        yield from _places(one.below, other.below)


def _with_docs(schema: Schema, table: AskedTable) -> Schema:
    """The comments on columns; those inside of them are not kept."""
    docs = {table.places[field.field_id]: field.doc for field in table.schema.fields if field.doc}

    def commented(field: NestedField) -> NestedField:
        doc = docs.get(field.field_id)
        return field if doc is None else field.model_copy(update={"doc": doc})

    return Schema(*map(commented, schema.fields), schema_id=schema.schema_id)


def _partitioned(metadata: TableMetadata, table: AskedTable, spec: PartitionSpec | None) -> dict[str, object]:
    """The engine's fields first, then those of the log: a rewrite stays inside a window of offsets."""
    wanted = [] if spec is None else [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    if not wanted:
        return {}
    tail = stream_spec(table.shape).fields
    first_id = metadata.last_partition_id or 0
    fields = [_placed(field, table, first_id + number) for number, field in enumerate(wanted, 1)]
    names = [field.name for field in (*fields, *tail)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RequestError(f"the table would have two partition fields {twice}")
    user = PartitionSpec(*fields, *tail, spec_id=USER_SPEC_ID)
    return {
        "partition_specs": [*metadata.partition_specs, user],
        "default_spec_id": USER_SPEC_ID,
        "last_partition_id": first_id + len(fields),
    }


def _placed(field: PartitionField, table: AskedTable, field_id: int) -> PartitionField:
    if isinstance(field.transform, UnknownTransform):
        raise RequestError(f"the table cannot be partitioned by {field.transform}: it is no transform of Iceberg")
    source = table.schema.find_field(field.source_id)
    if not field.transform.can_transform(source.field_type):
        raise RequestError(f"column {source.name} is {source.field_type}, which {field.transform} cannot partition")
    return PartitionField(table.places[field.source_id], field_id, field.transform, field.name)


def _ordered(table: AskedTable, order: SortOrder | None) -> dict[str, object]:
    if order is None or not order.fields:
        return {}
    fields = [
        SortField(table.places[field.source_id], field.transform, field.direction, field.null_order)
        for field in order.fields
    ]
    wanted = SortOrder(*fields, order_id=1)
    return {"sort_orders": [SortOrder(order_id=0), wanted], "default_sort_order_id": 1}
