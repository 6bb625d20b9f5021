"""What a Parquet file says of itself at its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from lakestream.table.writing.pages import DATA_PAGE, RLE, Chunk, physical_type
from lakestream.table.writing.shred import LIST_NODES, leaves_of
from lakestream.table.writing.thrift import Value, array, flag, long_number, number, struct, text

MAGIC: Final = b"PAR1"
"""A file begins and ends with it."""
_VERSION: Final = 2
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_UTF8, _LIST, _TIMESTAMP_MICROS = 0, 3, 10
_EMPTY: Final = struct()
_FIELD_ID: Final = b"PARQUET:field_id"
CREATED_BY: Final = "lakestream version 1"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """`position`: where in the file its first chunk begins."""

    rows: int
    position: int
    chunks: Sequence[Chunk]


def footer(schema: pa.Schema, groups: Sequence[RowGroup], about: Mapping[str, str]) -> bytes:
    """Of a file with these row groups, at least one; `about` are its keys and values."""
    pairs = [struct((1, text(key)), (2, text(value))) for key, value in about.items()]
    return struct(
        (1, number(_VERSION)),
        (2, _schema(schema)),
        (3, long_number(sum(group.rows for group in groups))),
        (4, array([*map(_row_group, groups)])),
        (5, array(pairs) if pairs else None),
        (6, text(CREATED_BY)),
        (7, _orders(schema)),
    ).data


def _row_group(group: RowGroup) -> Value:
    columns = []
    position = group.position
    for chunk in group.chunks:
        columns.append(_column(chunk, position))
        position += chunk.stored_bytes
    return struct(
        (1, array(columns)),
        (2, long_number(sum(chunk.plain_bytes for chunk in group.chunks))),
        (3, long_number(group.rows)),
        (5, long_number(group.position)),
        (6, long_number(position - group.position)),
    )


def _column(chunk: Chunk, position: int) -> Value:
    pages = struct((1, number(DATA_PAGE)), (2, number(chunk.encoding)), (3, number(chunk.page_count)))
    about = struct(
        (1, number(chunk.physical_type)),
        (2, array([number(chunk.encoding), number(RLE)])),
        (3, array([*map(text, chunk.path)])),
        (4, number(chunk.codec)),
        (5, long_number(chunk.entry_count)),
        (6, long_number(chunk.plain_bytes)),
        (7, long_number(chunk.stored_bytes)),
        (9, long_number(position)),
        (12, chunk.statistics),
        (13, array([pages])),
    )
    return struct((2, long_number(position)), (3, about))


@lru_cache(8)
def _schema(schema: pa.Schema) -> Value:
    elements = [struct((4, text("schema")), (5, number(len(schema))))]
    for field in schema:
        elements += _elements(field, field.name)
    return array(elements)


@lru_cache(8)
def _orders(schema: pa.Schema) -> Value:
    """Bounds are as the type orders its values."""
    return array([struct((1, _EMPTY)) for field in schema for _ in leaves_of(field)])


def _elements(field: pa.Field, name: str) -> list[Value]:
    """The column and what is below it, top down."""
    kind = field.type
    repetition = number(_OPTIONAL if field.nullable else _REQUIRED)
    known = (field.metadata or {}).get(_FIELD_ID)
    field_id = None if known is None else number(int(known))
    if pa.types.is_list(kind):
        node, element = LIST_NODES
        return [
            _group(name, repetition, 1, field_id, converted=number(_LIST), logical=struct((3, _EMPTY))),
            _group(node, number(_REPEATED), 1),
            *_elements(kind.value_field, element),
        ]
    if pa.types.is_struct(kind):
        below = [value for child in kind for value in _elements(child, child.name)]
        return [_group(name, repetition, kind.num_fields, field_id), *below]
    converted, logical = _logical(kind)
    return [
        struct(
            (1, number(physical_type(kind))),
            (3, repetition),
            (4, text(name)),
            (6, converted),
            (9, field_id),
            (10, logical),
        )
    ]


def _group(
    name: str,
    repetition: Value,
    children: int,
    field_id: Value | None = None,
    *,
    converted: Value | None = None,
    logical: Value | None = None,
) -> Value:
    return struct((3, repetition), (4, text(name)), (5, number(children)), (6, converted), (9, field_id), (10, logical))


def _logical(kind: pa.DataType) -> tuple[Value | None, Value | None]:
    """What the bytes mean, in the old words of the format and in the new."""
    if pa.types.is_string(kind):
        return number(_UTF8), struct((1, _EMPTY))
    if pa.types.is_timestamp(kind):
        if kind.unit != "us" or kind.tz is None:
            raise TypeError(f"columns of {kind} are not written")
        micros = struct((2, _EMPTY))
        return number(_TIMESTAMP_MICROS), struct((8, struct((1, flag(True)), (2, micros))))
    return None, None


def framed(data: bytes) -> bytes:
    """The footer with its length and the magic behind it, as it stands in the file."""
    return data + len(data).to_bytes(4, "little") + MAGIC
