"""What a Parquet file says of itself at its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from lakestream.table.parquet.writing.pages import DATA_PAGE, RLE, WrittenChunk, physical_type
from lakestream.table.parquet.writing.shred import LIST_NODES, leaves_of
from lakestream.table.parquet.writing.thrift import BINARY, I32, I64, LIST, STRUCT, TRUE, array, struct

MAGIC: Final = b"PAR1"
"""A file begins and ends with it."""
_VERSION: Final = 2
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_UTF8, _LIST, _TIMESTAMP_MICROS = 0, 3, 10
_EMPTY: Final = struct()
_FIELD_ID: Final = b"PARQUET:field_id"
CREATED_BY: Final = b"lakestream version 1.0.0"


@dataclass(frozen=True, slots=True)
class WrittenRowGroup:
    """`position`: where in the file its first chunk begins."""

    rows: int
    position: int
    chunks: Sequence[WrittenChunk]


def footer(schema: pa.Schema, groups: Sequence[WrittenRowGroup], about: Mapping[str, str]) -> bytes:
    """Of a file with these row groups, with its length and the magic behind it; `about` are its keys and values."""
    pairs = [struct((1, BINARY, key.encode()), (2, BINARY, value.encode())) for key, value in about.items()]
    data = struct(
        (1, I32, _VERSION),
        (2, LIST, _schema(schema)),
        (3, I64, sum(group.rows for group in groups)),
        (4, LIST, array(STRUCT, [*map(_row_group, groups)])),
        (5, LIST, array(STRUCT, pairs)),
        (6, BINARY, CREATED_BY),
        (7, LIST, _orders(schema)),
    )
    return data + len(data).to_bytes(4, "little") + MAGIC


def _row_group(group: WrittenRowGroup) -> bytes:
    columns = []
    position = group.position
    for chunk in group.chunks:
        columns.append(_column(chunk, position))
        position += chunk.stored_bytes
    return struct(
        (1, LIST, array(STRUCT, columns)),
        (2, I64, sum(chunk.plain_bytes for chunk in group.chunks)),
        (3, I64, group.rows),
        (5, I64, group.position),
        (6, I64, position - group.position),
    )


def _column(chunk: WrittenChunk, position: int) -> bytes:
    pages = struct((1, I32, DATA_PAGE), (2, I32, chunk.encoding), (3, I32, chunk.page_count))
    about = struct(
        (1, I32, chunk.physical_type),
        (2, LIST, array(I32, [chunk.encoding, RLE])),
        (3, LIST, array(BINARY, [name.encode() for name in chunk.path])),
        (4, I32, chunk.codec),
        (5, I64, chunk.entry_count),
        (6, I64, chunk.plain_bytes),
        (7, I64, chunk.stored_bytes),
        (9, I64, position),
        (12, STRUCT, chunk.statistics),
        (13, LIST, array(STRUCT, [pages])),
    )
    return struct((2, I64, position), (3, STRUCT, about))


@lru_cache(8)
def _schema(schema: pa.Schema) -> bytes:
    elements = [struct((4, BINARY, b"schema"), (5, I32, len(schema)))]
    for field in schema:
        elements += _elements(field, field.name)
    return array(STRUCT, elements)


@lru_cache(8)
def _orders(schema: pa.Schema) -> bytes:
    """Bounds are as the type orders its values."""
    return array(STRUCT, [struct((1, STRUCT, _EMPTY)) for field in schema for _ in leaves_of(field)])


def _elements(field: pa.Field, name: str) -> list[bytes]:
    """The column and what is below it, top down."""
    kind = field.type
    repetition = _OPTIONAL if field.nullable else _REQUIRED
    known = (field.metadata or {}).get(_FIELD_ID)
    field_id = None if known is None else int(known)
    if pa.types.is_list(kind):
        node, element = LIST_NODES
        is_list = struct((3, STRUCT, _EMPTY))
        return [
            _element(None, repetition, name, 1, _LIST, field_id, is_list),
            _element(None, _REPEATED, node, 1),
            *_elements(kind.value_field, element),
        ]
    if pa.types.is_struct(kind):
        below = [value for child in kind for value in _elements(child, child.name)]
        return [_element(None, repetition, name, kind.num_fields, field_id=field_id), *below]
    converted, logical = _meaning(kind)
    return [_element(physical_type(kind), repetition, name, None, converted, field_id, logical)]


def _element(
    physical: int | None,
    repetition: int,
    name: str,
    children: int | None,
    converted: int | None = None,
    field_id: int | None = None,
    logical: bytes | None = None,
) -> bytes:
    return struct(
        (1, I32, physical),
        (3, I32, repetition),
        (4, BINARY, name.encode()),
        (5, I32, children),
        (6, I32, converted),
        (9, I32, field_id),
        (10, STRUCT, logical),
    )


def _meaning(kind: pa.DataType) -> tuple[int | None, bytes | None]:
    """Of the bytes, in the old words of the format and in the new."""
    if pa.types.is_string(kind):
        return _UTF8, struct((1, STRUCT, _EMPTY))
    if pa.types.is_timestamp(kind):
        if kind.unit != "us" or kind.tz is None:
            raise TypeError(f"columns of {kind} are not written")
        in_utc = struct((1, TRUE, True), (2, STRUCT, struct((2, STRUCT, _EMPTY))))
        return _TIMESTAMP_MICROS, struct((8, STRUCT, in_utc))
    return None, None
