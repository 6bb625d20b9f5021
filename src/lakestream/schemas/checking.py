"""Values of a batch decoded by the schemas that they name, before the batch is taken: for topics whose
`lakestream.schema.validation` is `full`; of JSON also by the rules that a schema has beside types. A schema is tried as
a table's only one, so that no other is in its way."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from lakestream.errors import InvalidRecords
from lakestream.records import Arena, Binary, Columns, Run, decode
from lakestream.records.framing import framed_ids
from lakestream.records.layout import FRAME_BYTES
from lakestream.records.native import Buffer
from lakestream.schemas.codecs import install
from lakestream.schemas.constraints import rules_of
from lakestream.schemas.shapes import with_schema
from lakestream.table.parquet.arrow import binary_array
from lakestream.table.parquet.codec import decoded, explained
from lakestream.table.shape import TableShape, ValueSchema

EXPLAINED: Final = 100
"""Faults of a batch that are told with their own reason."""
_PIECE_BYTES: Final = 4 * 1024 * 1024
"""Of values that are columns at one time."""
_ARENA_BYTES: Final = 1024
_KEPT_SHAPES: Final = 256
_UNEXPLAINED: Final = "the value does not decode by its schema"

install()


def check_values(schemas: Mapping[int, ValueSchema], run: Buffer, *, of_keys: bool = False) -> None:
    """`run` is one batch of values, or keys, that are framed with an id among `schemas`, or null. Raises
    `InvalidRecords` with the records whose values are not of their schema."""
    faults: list[tuple[int, str]] = []
    for columns in decode([Run(0, 0, run)], Arena(max(len(run), _ARENA_BYTES))):
        looked_at = replace(columns, value=columns.key) if of_keys else columns
        for piece in _pieces(looked_at):
            faults += _faults(piece, schemas, EXPLAINED - len(faults))
    if faults:
        raise InvalidRecords(
            f"{len(faults)} of its records are at fault, the first is number {faults[0][0]}: {faults[0][1]}", faults
        )


def _pieces(columns: Columns) -> Iterator[Columns]:
    ends = columns.value.offsets.astype(np.int64)
    start = 0
    while start < len(columns):
        stop = int(np.searchsorted(ends, ends[start] + _PIECE_BYTES, side="right")) - 1
        stop = min(max(stop, start + 1), len(columns))
        yield columns.slice(start, stop)
        start = stop


def _faults(columns: Columns, schemas: Mapping[int, ValueSchema], explained_most: int) -> list[tuple[int, str]]:
    """In the order of the records."""
    ids = framed_ids(columns.value)
    values = binary_array(columns.value, pa.binary())
    present = np.unique(ids[columns.value.valid != 0]).tolist()
    bad: list[tuple[int, int]] = []
    for schema_id in present:
        rows = np.flatnonzero(ids == schema_id)
        mine = values if len(present) == 1 and len(rows) == len(values) else values.take(pa.array(rows))
        bad += [(int(row), schema_id) for row in rows[~_is_decoded(mine, schemas[schema_id])]]
    bad.sort()
    told = []
    for number, (row, schema_id) in enumerate(bad):
        text = _UNEXPLAINED
        if number < explained_most:
            text = _explanation(_value(columns.value, row), schemas[schema_id])
        told.append((int(columns.offset[row]), text))
    return told


def _is_decoded(values: pa.Array, schema: ValueSchema) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    shape = _shape_of(schema)
    found = None if shape.schemas[0].trouble else decoded(shape, values)
    if found is None:
        return np.zeros(len(values), np.bool_)
    rules = rules_of(schema)
    if rules is None:
        return found.is_typed
    keep = zip(found.is_typed.tolist(), values, strict=True)
    return np.array([typed and rules.are_kept(value.as_py()[FRAME_BYTES:]) for typed, value in keep], np.bool_)


def _explanation(value: bytes, schema: ValueSchema) -> str:
    shape = _shape_of(schema)
    if trouble := shape.schemas[0].trouble:
        return (
            f"schema {schema.schema_id} cannot be used to decode values: {trouble}. With"
            " lakestream.schema.validation=id the topic would take them"
        )
    rules = rules_of(schema)
    if rules is not None and _is_decoded_alone(value, shape):
        return f"the value breaks a rule of schema {schema.schema_id}: {rules.broken(value[FRAME_BYTES:])}"
    return f"the value does not decode: {explained(shape, value)}"


def _is_decoded_alone(value: bytes, shape: TableShape) -> bool:
    found = decoded(shape, pa.array([value], pa.binary()))
    return found is not None and bool(found.is_typed[0])


def _value(values: Binary, row: int) -> bytes:
    return bytes(values.data[int(values.offsets[row]) : int(values.offsets[row + 1])])


@lru_cache(_KEPT_SHAPES)
def _shape_of(schema: ValueSchema) -> TableShape:
    return with_schema(TableShape(codec=f"{schema.format.lower()}-schema-id-1"), schema)
