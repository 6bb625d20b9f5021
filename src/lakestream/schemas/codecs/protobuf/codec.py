"""Protobuf values behind the id of their schema and the indexes of their message, or without: `ProtobufCodec` fills the
columns of a shape with them and makes the same bytes of the columns again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.records import Binary
from lakestream.records.layout import FRAME_BYTES
from lakestream.schemas.codecs.framing import plain_ids, schema_of
from lakestream.schemas.codecs.layout import SLACK_BYTES, STACK_WORDS, ValueStatus
from lakestream.schemas.codecs.native import kernels
from lakestream.schemas.codecs.output import addresses, written
from lakestream.schemas.codecs.protobuf.explaining import explain_protobuf
from lakestream.schemas.codecs.protobuf.layout import PROGRAM_WORDS, ProgramWord, RowState
from lakestream.schemas.codecs.protobuf.program import ProtoProgram, ProtoTexts, compile_programs
from lakestream.schemas.codecs.protobuf.reading import Malformed, json_text, plain_form, varint
from lakestream.schemas.codecs.slots import ColumnSlot, SlotMemory, memory_of, slots_of
from lakestream.schemas.codecs.texts_in_columns import has_text, with_texts
from lakestream.schemas.mapping.protobuf import flat_message
from lakestream.schemas.protobuf import ProtoMessage, ProtoSchema, parse_descriptors
from lakestream.table.parquet.arrow import bytes_in, offsets_in, valid_rows
from lakestream.table.parquet.codec import DecodedValues
from lakestream.table.shape import TableShape

CODEC: Final = "protobuf-schema-id-1"
PLAIN_CODEC: Final = "protobuf-plain-1"
"""The names in shapes: framing and mapping version included, which never change under a table."""
MAX_UNUSUAL_BYTES: Final = 64 * 1024
"""Of a value that has a field several times: longer ones stay bytes."""
_KEPT_SHAPES: Final = 64
_INDEX_BITS: Final = 20

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ProtoShape:
    """`keys`, in order: of framed values, with the `numbers` of their programs. `groups`: of each schema, the first of
    its programs and how many it has; the first is that of plain values. `places`: of a schema in those, by its id."""

    roots: tuple[ColumnSlot, ...]
    schemas: tuple[ProtoSchema, ...]
    programs: tuple[ProtoProgram, ...]
    schema_of: tuple[int, ...]
    ids: tuple[int, ...]
    places: Mapping[int, int]
    groups: Ints
    choices: Ints
    keys: Longs
    numbers: Ints
    symbols: Mapping[int, Sequence[str]]
    texts: tuple[tuple[ProtoSchema, ProtoMessage], ...]
    table: Longs
    empty: Longs
    parents: Longs

    def groups_of(self, schema_ids: Longs) -> Ints:
        """The place of each row's schema; -1: none."""
        known = np.array(sorted(self.places), np.int64)
        if not len(known):
            return np.full(len(schema_ids), -1, np.int32)
        places = np.array([self.places[each] for each in known.tolist()], np.int32)
        at = np.searchsorted(known, schema_ids).clip(0, len(known) - 1)
        return np.where(known[at] == schema_ids, places[at], -1).astype(np.int32)


@lru_cache(_KEPT_SHAPES)
def compiled(shape: TableShape, is_framed: bool) -> ProtoShape:
    """Shared: never change it."""
    roots = slots_of(shape)
    symbols: dict[int, list[str]] = {}
    texts = ProtoTexts()
    usable = [each for each in shape.schemas if not each.trouble]
    ids = [each.schema_id for each in usable]
    schemas = [parse_descriptors(each.text) for each in usable]
    flat = flat_message(schemas[0], usable[0].message) if schemas else ""
    programs: list[ProtoProgram] = []
    owners: list[int] = []
    groups: list[int] = []
    for place, schema in enumerate(schemas):
        found = compile_programs(schema, flat, roots, symbols, texts)
        groups += [len(programs), len(found)]
        programs += found
        owners += [place] * len(found)
    owned = [*zip(owners, programs, strict=True)]
    keys = {ids[owner] << _INDEX_BITS | each.index: number for number, (owner, each) in enumerate(owned)}
    slots = [slot for root in roots for slot in root.all()]
    rows = [_row(each, _prefix(ids[owner], each.index) if is_framed else b"") for owner, each in owned]
    return ProtoShape(
        roots,
        tuple(schemas),
        tuple(programs),
        tuple(owners),
        tuple(ids),
        {schema_id: place for place, schema_id in enumerate(ids)},
        np.array(groups or [0, 0], np.int32),
        np.arange(max(1, len(programs)), dtype=np.int32),
        np.array(sorted(keys) or [0], np.int64),
        np.array([keys[key] for key in sorted(keys)] or [-1], np.int32),
        symbols,
        tuple(texts.found),
        np.array(rows or [[0] * PROGRAM_WORDS], np.int64),
        np.array([number for root in roots for number in root.empties()], np.int64),
        np.array([word for slot in slots for word in (slot.parent, slot.is_repeated)] or [0], np.int64),
    )


def _prefix(schema_id: int, index: int) -> bytes:
    """A zero byte, the schema's id, then the number of the message's indexes and the indexes themselves, as zigzag
    numbers; for the first message alone a zero."""
    return b"\0" + schema_id.to_bytes(4, "big") + message_index(index)


def message_index(index: int) -> bytes:
    if index == 0:
        return b"\0"
    found, left = bytearray(b"\2"), index << 1
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _row(program: ProtoProgram, prefix: bytes) -> list[int]:
    row: list[int] = [0] * ProgramWord.PREFIX
    row[ProgramWord.CODE], row[ProgramWord.EXTRA] = addresses(program.code, program.extra)
    row[ProgramWord.BLOCK], row[ProgramWord.SLOT] = program.block, program.slot
    row[ProgramWord.EMPTIES_AT], row[ProgramWord.EMPTIES] = program.empties
    row[ProgramWord.PREFIX_BYTES] = len(prefix)
    return [*row, *map(int, np.frombuffer(prefix.ljust(16, b"\0"), np.int64))]


@dataclass(slots=True)
class _Values:
    """Values without their framing: the number of each one's program, -1: it has none, and where it is in the data."""

    which: Ints
    begins: Longs
    ends: Longs
    data: npt.NDArray[np.uint8]


class ProtobufCodec:
    """Implements `ValueCodec`. Not `is_framed`: values are of the schema that the shape names for all, and of the
    first of its messages."""

    def __init__(self, *, is_framed: bool = True) -> None:
        self._is_framed = is_framed

    def decode(self, values: pa.Array, shape: TableShape) -> DecodedValues:
        program = compiled(shape, self._is_framed)
        found = self._placed(program, values, shape)
        memory, states = _decode(program, found)
        unusual = np.flatnonzero(states == RowState.UNUSUAL)
        if len(unusual) and _made_plain(program, found, unusual):
            memory, states = _decode(program, found)
            states[unusual] = np.minimum(states[unusual], RowState.TYPED)
        states[states == RowState.UNUSUAL] = RowState.EMPTY
        is_typed = states != RowState.EMPTY
        columns = memory.arrow(program.symbols)
        for root in program.roots:
            if has_text(root):
                columns[root.column.name] = with_texts(columns[root.column.name], root, program.texts, json_text)
        ids = np.array([*(program.ids[owner] for owner in program.schema_of), 0], np.int32)
        return DecodedValues(columns, is_typed, states == RowState.EXACT, pa.array(ids[found.which], mask=~is_typed))

    def _placed(self, program: ProtoShape, values: pa.Array, shape: TableShape) -> _Values:
        rows = len(values)
        offsets, data, valid = offsets_in(values), bytes_in(values), valid_rows(values)
        if not self._is_framed:
            groups = program.groups_of(plain_ids(values, shape))
            firsts = np.where(program.groups[1::2] > 0, program.groups[::2], -1)
            which = np.where(groups >= 0, firsts[groups], -1).astype(np.int32)
            return _Values(which, offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64), data)
        found = _Values(np.empty(rows, np.int32), np.zeros(rows, np.int64), np.zeros(rows, np.int64), data)
        kernels().place_values(
            *addresses(program.keys, program.numbers),
            len(program.keys),
            *addresses(offsets, data, valid),
            rows,
            *addresses(found.which, found.begins, found.ends),
        )
        return found

    def encode(
        self, columns: Mapping[str, pa.Array], schema_ids: npt.NDArray[np.int64], raw: Binary, shape: TableShape
    ) -> Binary:
        program = compiled(shape, self._is_framed)
        return _encode(program, columns, program.groups_of(schema_ids), raw)

    def explain(self, value: bytes, shape: TableShape) -> str:
        if self.decode(pa.array([value], pa.binary()), shape).is_typed[0]:
            return "the value is as it should be"
        found = schema_of(value, shape, is_framed=self._is_framed)
        if isinstance(found, str):
            return found
        schema, name = parse_descriptors(found.text), ""
        program = compiled(shape, self._is_framed)
        place = program.places[found.schema_id]
        known = [each for each, owner in zip(program.programs, program.schema_of, strict=True) if owner == place]
        body = value
        if self._is_framed:
            told = _indexes(value[FRAME_BYTES:])
            if isinstance(told, str):
                return f"by the schema {found.schema_id}: {told}"
            indexes, size = told
            body = value[FRAME_BYTES + size :]
            name = schema.own[indexes[0]] if indexes[0] < len(schema.own) and len(indexes) == 1 else ""
            if name not in [each.message for each in known]:
                told = ".".join(map(str, indexes))
                return f"by the schema {found.schema_id}: the table has no columns for its message {name or told}"
        name = name or known[0].message if known else ""
        if not name:
            return f"the table has no columns for the messages of the schema {found.schema_id}"
        why = explain_protobuf(schema, schema.messages[name], body)
        return f"by the schema {found.schema_id}: {why or 'it is too large or nests too deep for columns'}"


def _indexes(data: bytes) -> tuple[list[int], int] | str:
    """Of a value's message, and how many bytes they take; or what is wrong with them."""
    try:
        count, at = varint(data, 0)
        found = []
        for _ in range(min(count >> 1, 100)):
            index, at = varint(data, at)
            found.append(index >> 1)
    except Malformed as wrong:
        return f"the indexes of its message cannot be read: it {wrong}"
    plain = message_index(found[0]) if len(found) == 1 else None
    if plain is not None and plain != data[:at]:
        return "the index of its message is not written in the shortest form"
    return found or [0], at


def _made_plain(program: ProtoShape, values: _Values, rows: npt.NDArray[np.int64]) -> bool:
    """Puts values that have fields several times into a form in which they have not."""
    parts, at = [values.data], len(values.data)
    for row in rows.tolist():
        begin, end = int(values.begins[row]), int(values.ends[row])
        number = int(values.which[row])
        schema = program.schemas[program.schema_of[number]]
        message = schema.messages[program.programs[number].message]
        try:
            if end - begin > MAX_UNUSUAL_BYTES:
                continue
            plain = plain_form(schema, message, values.data[begin:end].tobytes())
        except Malformed:
            continue
        parts.append(np.frombuffer(plain, np.uint8))
        values.begins[row], values.ends[row] = at, at + len(plain)
        at += len(plain)
    values.data = np.concatenate(parts)
    return len(parts) > 1


def _decode(program: ProtoShape, values: _Values) -> tuple[SlotMemory, npt.NDArray[np.uint8]]:
    rows = len(values.which)
    which = values.which.copy()
    sizes = values.ends - values.begins
    memory = SlotMemory(program.roots)
    memory.reserve(rows, int(sizes.sum()))
    states = np.zeros(rows, np.uint8)
    stack = np.empty(STACK_WORDS, np.int64)
    cursor = np.array([0, 0, len(program.empty), 0], np.int64)
    while True:
        status = kernels().decode_protobuf(
            *addresses(program.table, which, program.empty, memory.table, program.parents),
            len(program.parents) // 2 if program.roots else 0,
            *addresses(stack, values.begins, values.ends, values.data),
            rows,
            *addresses(states, cursor),
        )
        if status == ValueStatus.DONE:
            break
        if not memory.grow(int(cursor[1]), entries=bool(cursor[3])):
            which[cursor[0]] = -1
    spare = np.empty(int(sizes.max(initial=0)) + SLACK_BYTES, np.uint8)
    kernels().compare_protobuf(
        *addresses(program.table, which, memory.table, stack, values.begins, values.ends, values.data),
        rows,
        *addresses(states, spare),
    )
    return memory, states


def _encode(program: ProtoShape, rows: Mapping[str, pa.Array], which: Ints, raw: Binary) -> Binary:
    memory = memory_of(program.roots, rows, program.symbols)
    count = len(which)
    limit = max(4096, 2 * sum(array.nbytes for array in rows.values()) + len(raw.data) + 2 * FRAME_BYTES * count)
    stack = np.empty(STACK_WORDS, np.int64)
    write = partial(
        kernels().encode_protobuf,
        *addresses(program.table, program.choices, program.groups, which, memory.table, stack),
        *addresses(raw.offsets, raw.data, raw.valid),
        count,
    )
    return written(write, count, limit, SLACK_BYTES)
