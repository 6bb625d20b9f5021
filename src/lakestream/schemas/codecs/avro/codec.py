"""Avro values behind the id of their schema, or without: `AvroCodec` fills the columns of a shape with them and makes
the same bytes of the columns again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.records import Binary
from lakestream.records.layout import FRAME_BYTES
from lakestream.records.native import address
from lakestream.schemas.avro import AvroSchema, AvroType, parse_avro
from lakestream.schemas.codecs.avro.explaining import explain_avro
from lakestream.schemas.codecs.avro.program import Program, Texts, compile_program
from lakestream.schemas.codecs.avro.text import json_text
from lakestream.schemas.codecs.framing import schema_of, value_ids
from lakestream.schemas.codecs.layout import SLACK_BYTES, STACK_WORDS, ValueStatus
from lakestream.schemas.codecs.native import kernels
from lakestream.schemas.codecs.output import addresses, written
from lakestream.schemas.codecs.slots import ColumnSlot, SlotMemory, memory_of, slots_of
from lakestream.schemas.codecs.texts_in_columns import has_text, with_texts
from lakestream.table.parquet.arrow import bytes_in, offsets_in
from lakestream.table.parquet.codec import DecodedValues
from lakestream.table.shape import TableShape

CODEC: Final = "avro-schema-id-1"
PLAIN_CODEC: Final = "avro-plain-1"
"""The names in shapes: framing and mapping version included, which never change under a table."""
_KEPT_SHAPES: Final = 64

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CompiledShape:
    """`places`: the number of a schema's program, by its id."""

    roots: tuple[ColumnSlot, ...]
    programs: tuple[Program, ...]
    places: Mapping[int, int]
    ids: Ints
    symbols: Mapping[int, Sequence[str]]
    texts: tuple[tuple[AvroSchema, AvroType], ...]
    table: Longs
    empty: Longs
    parents: Longs

    def which(self, schema_ids: npt.NDArray[np.int64]) -> Ints:
        """The number of each row's program; -1: none."""
        known = np.array(sorted(self.places), np.int64)
        if not len(known):
            return np.full(len(schema_ids), -1, np.int32)
        numbers = np.array([self.places[each] for each in known.tolist()], np.int32)
        at = np.searchsorted(known, schema_ids).clip(0, len(known) - 1)
        return np.where(known[at] == schema_ids, numbers[at], -1).astype(np.int32)


@lru_cache(_KEPT_SHAPES)
def compiled(shape: TableShape) -> CompiledShape:
    """Shared: never change it."""
    roots = slots_of(shape)
    symbols: dict[int, list[str]] = {}
    texts = Texts()
    schemas = [each for each in shape.schemas if not each.trouble]
    programs = tuple(
        compile_program(parse_avro(each.text, dict(each.references)), roots, symbols, texts) for each in schemas
    )
    slots = [slot for root in roots for slot in root.all()]
    return CompiledShape(
        roots,
        programs,
        {each.schema_id: place for place, each in enumerate(schemas)},
        np.array([each.schema_id for each in schemas] or [0], np.int32),
        symbols,
        tuple(texts.found),
        np.array([word for each in programs for word in (address(each.code), address(each.extra))] or [0], np.int64),
        np.array([number for root in roots for number in root.empties()], np.int64),
        np.array([word for slot in slots for word in (slot.parent, slot.is_repeated)] or [0], np.int64),
    )


class AvroCodec:
    """Implements `ValueCodec`. Not `is_framed`: values are of the schema that the shape names for all."""

    def __init__(self, *, is_framed: bool = True) -> None:
        self._is_framed = is_framed
        self._prefix_bytes = FRAME_BYTES if is_framed else 0

    def decode(self, values: pa.Array, shape: TableShape) -> DecodedValues:
        program = compiled(shape)
        schema_ids = value_ids(values, shape, is_framed=self._is_framed)
        which = program.which(schema_ids)
        memory, states = _decode(program, values, which, self._prefix_bytes)
        is_typed = states != 0
        columns = memory.arrow(program.symbols)
        for root in program.roots:
            if has_text(root):
                columns[root.column.name] = with_texts(columns[root.column.name], root, program.texts, json_text)
        ids = pa.array(schema_ids.astype(np.int32), mask=~is_typed)
        return DecodedValues(columns, is_typed, states == _EXACT, ids)

    def encode(
        self, columns: Mapping[str, pa.Array], schema_ids: npt.NDArray[np.int64], raw: Binary, shape: TableShape
    ) -> Binary:
        program = compiled(shape)
        return _encode(program, columns, program.which(schema_ids), raw, self._prefix_bytes)

    def explain(self, value: bytes, shape: TableShape) -> str:
        if self.decode(pa.array([value], pa.binary()), shape).is_typed[0]:
            return "the value is as it should be"
        schema = schema_of(value, shape, is_framed=self._is_framed)
        if isinstance(schema, str):
            return schema
        why = explain_avro(parse_avro(schema.text, dict(schema.references)), value[self._prefix_bytes :])
        return f"by the schema {schema.schema_id}: {why or 'it is too large or nests too deep for columns'}"


_EXACT: Final = 2


def _decode(
    program: CompiledShape, values: pa.Array, which: Ints, prefix_bytes: int
) -> tuple[SlotMemory, npt.NDArray[np.uint8]]:
    rows = len(values)
    offsets, data = offsets_in(values), bytes_in(values)
    memory = SlotMemory(program.roots)
    memory.reserve(rows, int(offsets[-1] - offsets[0]))
    states = np.zeros(rows, np.uint8)
    stack = np.empty(STACK_WORDS, np.int64)
    cursor = np.array([0, 0, len(program.empty), 0], np.int64)
    while True:
        status = kernels().decode_values(
            *addresses(program.table, which, program.empty, memory.table, program.parents),
            len(program.parents) // 2 if program.roots else 0,
            *addresses(stack, offsets, data),
            prefix_bytes,
            rows,
            *addresses(states, cursor),
        )
        if status == ValueStatus.DONE:
            break
        if not memory.grow(int(cursor[1]), entries=bool(cursor[3])):
            which[cursor[0]] = -1
    longest = int(np.diff(offsets).max(initial=0))
    spare = np.empty(longest + SLACK_BYTES, np.uint8)
    kernels().compare_values(
        *addresses(program.table, which, memory.table, stack, offsets, data),
        prefix_bytes,
        rows,
        *addresses(states, spare),
    )
    return memory, states


def _encode(
    program: CompiledShape, rows: Mapping[str, pa.Array], which: Ints, raw: Binary, prefix_bytes: int
) -> Binary:
    memory = memory_of(program.roots, rows, program.symbols)
    count = len(which)
    limit = max(4096, 2 * sum(array.nbytes for array in rows.values()) + len(raw.data) + prefix_bytes * count)
    stack = np.empty(STACK_WORDS, np.int64)
    write = partial(
        kernels().encode_values,
        *addresses(program.table, which, memory.table, stack, raw.offsets, raw.data, raw.valid, program.ids),
        prefix_bytes,
        count,
    )
    return written(write, count, limit, SLACK_BYTES)
