"""Rows of typed topics, as the simulation keeps them: which schema a value names follows from its text, and what stands
for its columns cannot be read without that schema."""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

import numpy as np

from lakestream.frontier.moving.tiles.tile import Tile
from lakestream.records import Binary
from lakestream.table.shape import TableShape, ValueSchema
from simulator.batches import Row

IDS: Final = range(1, 7)
"""Of the schemas that values name. Some values of a batch name another than their neighbours."""
_TYPED: Final = b"\xff"
_TYPED_AND_RAW: Final = b"\xfe"
_DAMAGED: Final = 7
"""One value in so many does not decode by its schema."""


def schema_of(schema_id: int) -> ValueSchema:
    field = f'{{"name":"f{schema_id}","type":["null","int"],"default":null}}'
    return ValueSchema(schema_id, f'{{"type":"record","name":"V","fields":[{field}]}}')


def schema_id_of(value: bytes) -> int:
    return IDS[crc32(value) % len(IDS)]


def is_damaged(value: bytes) -> bool:
    return crc32(value[::-1]) % _DAMAGED == 0


def is_raw(stored: bytes) -> bool:
    return stored[:1] not in (_TYPED, _TYPED_AND_RAW)


def stored(rows: Sequence[Row], tile: Tile) -> tuple[list[Row], frozenset[int]]:
    """As a worker writes them by the tile's shape, and the schemas that this does not know."""
    if not tile.is_typed:
        return list(rows), frozenset()
    known = _known(tile.shape)
    told = {each.schema_id for each in tile.shape.schemas}
    unknown = {schema_id_of(row.value) for row in rows} - told if tile.has_ids else set()
    return [_with_columns(row, known) for row in rows], frozenset(unknown)


def filled(row: Row, shape: TableShape) -> Row:
    """As a replay leaves it: the bytes stay beside what stands for the columns."""
    schema_id = schema_id_of(row.value)
    if not is_raw(row.value) or is_damaged(row.value) or schema_id not in _known(shape):
        return row
    return row._replace(value=_TYPED_AND_RAW + bytes([schema_id]) + row.value)


def rebuilt(value: bytes, shape: TableShape) -> bytes:
    """What a fetch gives. Without the schema nobody can tell."""
    if is_raw(value):
        return value
    schema = _known(shape).get(value[1])
    if schema is None:
        return b"?.?.0." + value
    return value[2:] if value[:1] == _TYPED_AND_RAW else _masked(value[2:], schema)


def _with_columns(row: Row, known: dict[int, ValueSchema]) -> Row:
    schema = known.get(schema_id_of(row.value))
    if schema is None or is_damaged(row.value):
        return row
    return row._replace(value=_TYPED + bytes([schema.schema_id]) + _masked(row.value, schema))


def _known(shape: TableShape) -> dict[int, ValueSchema]:
    return {each.schema_id: each for each in shape.schemas if not each.trouble}


def _masked(value: bytes, schema: ValueSchema) -> bytes:
    key = crc32(schema.text.encode()) & 0xFF
    return bytes(byte ^ key for byte in value)


def binary(values: Sequence[bytes]) -> Binary:
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return Binary(ends, np.frombuffer(b"".join(values), np.uint8), np.ones(len(values), np.uint8))
