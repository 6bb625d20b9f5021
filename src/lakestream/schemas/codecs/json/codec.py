"""Values in JSON, behind the id of their schema or without. `JsonCodec` fills the columns of a shape with them, and the
column `_format` with templates by which the same bytes are made of the columns again."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.records import Binary
from lakestream.records.layout import FRAME_BYTES
from lakestream.schemas.codecs.framing import schema_of, value_ids
from lakestream.schemas.codecs.json.discovering import Discoverer
from lakestream.schemas.codecs.json.explaining import explain_json
from lakestream.schemas.codecs.json.numbers import POWERS
from lakestream.schemas.codecs.json.reading import ReadProgram, compile_reader
from lakestream.schemas.codecs.json.template import parse_template, text_of
from lakestream.schemas.codecs.json.writing import WriteProgram, compile_writer, default_template, schema_template
from lakestream.schemas.codecs.kernels.json.layout import LONGEST_NUMBER
from lakestream.schemas.codecs.layout import STACK_WORDS, ValueStatus
from lakestream.schemas.codecs.native import kernels
from lakestream.schemas.codecs.output import addresses, written
from lakestream.schemas.codecs.slots import ColumnSlot, SlotMemory, memory_of, slots_of
from lakestream.schemas.json import parse_json_schema
from lakestream.schemas.mapping import ROOT, source_of
from lakestream.schemas.mapping.json import FORMAT
from lakestream.table.parquet.arrow import bytes_in, offsets_in
from lakestream.table.parquet.codec import DecodedValues
from lakestream.table.shape import TableColumn, TableShape

CODEC: Final = "json-schema-id-1"
PLAIN_CODEC: Final = "json-plain-1"
"""The names in shapes: framing and mapping version included, which never change under a table."""
MAX_TEMPLATES: Final = 64
"""Of a tile. Rows that would need more keep their bytes."""
_MAX_TRIES: Final = 96
_MAX_TRIED_BYTES: Final = 512 * 1024
"""How many texts are looked at for a template, and how many bytes: one by one, so it takes its time."""
_KEPT_SHAPES: Final = 64
_KEPT_WRITERS: Final = 1024
_EXACT: Final = 2
_RAW: Final = -1
_IMPOSSIBLE: Final = -2

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class JsonPrograms:
    """`places`: the number of a schema's program, by its id. `are_objects`: of each program, whether its values are the
    columns rather than one."""

    roots: tuple[ColumnSlot, ...]
    programs: tuple[ReadProgram, ...]
    are_objects: tuple[bool, ...]
    places: Mapping[int, int]
    empty: Longs
    parents: Longs

    def which(self, schema_ids: Longs) -> Ints:
        """The number of each row's program; -1: none."""
        found = np.full(len(schema_ids), -1, np.int32)
        for schema_id, place in self.places.items():
            found[schema_ids == schema_id] = place
        return found


@lru_cache(_KEPT_SHAPES)
def compiled(shape: TableShape) -> JsonPrograms:
    """Shared: never change it."""
    roots = slots_of(shape)
    schemas = [each for each in shape.schemas if not each.trouble]
    types = [parse_json_schema(each.text, dict(each.references)) for each in schemas]
    slots = [slot for root in roots for slot in root.all()]
    return JsonPrograms(
        roots,
        tuple(compile_reader(each, roots) for each in types),
        tuple(each.kind == "object" for each in types),
        {each.schema_id: place for place, each in enumerate(schemas)},
        np.array([number for root in roots for number in root.empties()] or [0], np.int64),
        np.array([word for slot in slots for word in (slot.parent, slot.is_repeated)] or [0], np.int64),
    )


@lru_cache(_KEPT_WRITERS)
def _writer(shape: TableShape, text: str | None) -> WriteProgram | None:
    """Of a template's text, or of the one for rows that have none. Shared."""
    program = compiled(shape)
    if text is None:
        roots = sorted(program.roots, key=lambda slot: source_of(slot.column) != ROOT)
        return compile_writer(default_template(roots, is_object=any(program.are_objects)), program.roots)
    template = parse_template(text)
    return None if template is None else compile_writer(template, program.roots)


class JsonCodec:
    """Implements `ValueCodec`."""

    def __init__(self, *, is_framed: bool = True) -> None:
        self._is_framed = is_framed
        self._prefix_bytes = FRAME_BYTES if is_framed else 0

    def decode(self, values: pa.Array, shape: TableShape) -> DecodedValues:
        schema_ids = value_ids(values, shape, is_framed=self._is_framed)
        tile = _Tile(values, shape, self._prefix_bytes, compiled(shape).which(schema_ids))
        tile.read()
        tile.match()
        is_typed = tile.states != 0
        columns = tile.memory.arrow({})
        columns |= {column.name: tile.formats() for column in _format_columns(shape)}
        ids = pa.array(schema_ids.astype(np.int32), mask=~is_typed)
        return DecodedValues(columns, is_typed, tile.states == _EXACT, ids)

    def encode(self, columns: Mapping[str, pa.Array], schema_ids: Longs, raw: Binary, shape: TableShape) -> Binary:
        found = dict(columns)
        formats = next((found.pop(column.name) for column in _format_columns(shape)), None)
        is_known = compiled(shape).which(schema_ids) >= 0
        which = np.full(len(schema_ids), _IMPOSSIBLE, np.int32)
        writers: list[WriteProgram] = []
        if formats is not None:
            places = _writer_places(formats.dictionary.to_pylist(), shape, writers)
            rows = formats.indices.fill_null(len(places) - 1).to_numpy(zero_copy_only=False)
            which = np.where(is_known, places[rows], _IMPOSSIBLE).astype(np.int32)
        which[schema_ids < 0] = _RAW
        return _encoded(compiled(shape), found, writers, which, schema_ids, raw, self._prefix_bytes)

    def explain(self, value: bytes, shape: TableShape) -> str:
        schema = schema_of(value, shape, is_framed=self._is_framed)
        if isinstance(schema, str):
            return schema
        found = parse_json_schema(schema.text, dict(schema.references))
        why = explain_json(found, value[self._prefix_bytes :])
        return f"by the schema {schema.schema_id}: {why or 'it is too large or nests too deep for columns'}"


def insert_format(shape: TableShape, schema_id: int) -> str:
    """What rows have in the column `_format` that are to be values of this schema, which the shape has."""
    schema = next(each for each in shape.schemas if each.schema_id == schema_id)
    return text_of(schema_template(parse_json_schema(schema.text, dict(schema.references)), compiled(shape).roots))


def _format_columns(shape: TableShape) -> list[TableColumn]:
    """One, unless no schema made any columns. The table's owner may have one of its name."""
    return [column for column in shape.value_columns if column.content == FORMAT.content]


def _writer_places(texts: list[str | None], shape: TableShape, writers: list[WriteProgram]) -> Ints:
    """The number of each text's program in `writers`, and behind them that of rows without a template."""
    places: list[int] = []
    for text in (*texts, None):
        program = _writer(shape, text)
        places.append(_IMPOSSIBLE if program is None else len(writers))
        writers += [] if program is None else [program]
    return np.array(places, np.int32)


def _table(programs: list[WriteProgram]) -> Longs:
    """As `kernels.json.writing` wants it."""
    words = [word for each in programs for word in addresses(each.code, each.extra, each.texts)]
    return np.array(words or [0], np.int64)


class _Tile:
    """Values on their way into columns."""

    def __init__(self, values: pa.Array, shape: TableShape, prefix_bytes: int, which: Ints) -> None:
        self._shape = shape
        self._program = compiled(shape)
        self._prefix_bytes = prefix_bytes
        self._which = which
        self._rows = len(values)
        self._offsets, self._data = offsets_in(values), bytes_in(values)
        longest = int(np.diff(self._offsets).max(initial=0))
        self._spare = np.empty(longest + LONGEST_NUMBER, np.uint8)
        self._stack = np.empty(STACK_WORDS, np.int64)
        self._texts: list[str] = []
        self._chosen = np.full(self._rows, -1, np.int32)
        self.memory = SlotMemory(self._program.roots)
        self.states = np.zeros(self._rows, np.uint8)

    def read(self) -> None:
        """All rows into slots."""
        program = self._program
        self.memory.reserve(self._rows, int(self._offsets[-1] - self._offsets[0]))
        hints = [each.hints.copy() for each in program.programs]
        words = [
            word
            for each, own in zip(program.programs, hints, strict=True)
            for word in addresses(each.code, each.extra, each.texts, own)
        ]
        table = np.array(words or [0], np.int64)
        empty_count = sum(1 for root in program.roots for _ in root.empties())
        cursor = np.array([0, 0, empty_count, 0], np.int64)
        while True:
            status = kernels().read_values(
                *addresses(table, self._which, program.empty, self.memory.table, program.parents),
                len(program.parents) // 2 if program.roots else 0,
                *addresses(self._stack, POWERS, self._spare, self._offsets, self._data),
                self._prefix_bytes,
                self._rows,
                *addresses(self.states, cursor),
            )
            if status == ValueStatus.DONE:
                return
            if not self.memory.grow(int(cursor[1]), entries=bool(cursor[3])):
                self._which[cursor[0]] = -1

    def match(self) -> None:
        """Of each row that is as good as its text: the template that makes the text again, found in such rows."""
        discoverer = Discoverer(self._program.roots)
        programs: list[WriteProgram] = []
        order = np.arange(MAX_TEMPLATES + 1, dtype=np.int64)
        cursor = np.zeros(2, np.int64)
        tries, tried_bytes, tried_row = 0, 0, -1
        while True:
            can_try = len(programs) < MAX_TEMPLATES and tries < _MAX_TRIES and tried_bytes < _MAX_TRIED_BYTES
            cursor[1] = can_try or cursor[0] == tried_row
            table = _table(programs)
            status = kernels().match_values(
                *addresses(table, order),
                len(programs),
                *addresses(self.memory.table, self._stack, POWERS, self._offsets, self._data),
                self._prefix_bytes,
                self._rows,
                *addresses(self.states, self._spare, self._chosen, cursor),
            )
            if status == ValueStatus.DONE:
                return
            row = int(cursor[0])
            if row == tried_row:
                # The newest, which is first in order still, does not make the text that it is of.
                programs.pop()
                self._texts.pop()
                order[:-1] = order[1:]
            if row == tried_row or not can_try:
                self.states[row] = 1
                continue
            start, stop = int(self._offsets[row]) + self._prefix_bytes, int(self._offsets[row + 1])
            tries, tried_bytes = tries + 1, tried_bytes + stop - start
            if stop - start > _MAX_TRIED_BYTES:
                self.states[row] = 1
                continue
            is_object = self._program.are_objects[self._which[row]]
            template = text_of(discoverer.template_of(self._data[start:stop].tobytes().decode(), is_object=is_object))
            program = _writer(self._shape, template)
            if program is None:
                self.states[row] = 1
                continue
            tried_row = row
            order[1 : len(programs) + 1] = order[: len(programs)].copy()
            order[0] = len(programs)
            programs.append(program)
            self._texts.append(template)

    def formats(self) -> pa.Array:
        places = pa.array(self._chosen, mask=self._chosen < 0)
        return pa.DictionaryArray.from_arrays(places, pa.array(self._texts, pa.string()))


def _encoded(
    program: JsonPrograms,
    rows: Mapping[str, pa.Array],
    writers: list[WriteProgram],
    which: Ints,
    schema_ids: Longs,
    raw: Binary,
    prefix_bytes: int,
) -> Binary:
    memory = memory_of(program.roots, rows, {})
    table = _table(writers)
    count = len(which)
    ids = schema_ids.astype(np.int32)
    limit = max(4096, 3 * sum(array.nbytes for array in rows.values()) + len(raw.data) + FRAME_BYTES * count)
    stack = np.empty(STACK_WORDS, np.int64)
    write = partial(
        kernels().write_values,
        *addresses(table, which, memory.table, stack, POWERS, raw.offsets, raw.data, raw.valid, ids),
        prefix_bytes,
        count,
    )
    return written(write, count, limit, LONGEST_NUMBER)
