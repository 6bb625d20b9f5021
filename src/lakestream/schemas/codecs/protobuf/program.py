"""A schema as the programs that take its values apart into the columns of a table, and put them together again: one for
each message that a value may be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from lakestream.errors import InvalidSchema
from lakestream.schemas.codecs.protobuf.layout import INSTRUCTION_BYTES, NO_NUMBER, Label, ProtoOp, Word
from lakestream.schemas.codecs.slots import ColumnSlot
from lakestream.schemas.mapping import source_of
from lakestream.schemas.mapping.protobuf import TIMESTAMP, WRAPPERS, struct_messages
from lakestream.schemas.protobuf import IMPLICIT, REPEATED, REQUIRED, ProtoField, ProtoMessage, ProtoSchema

MAX_INSTRUCTIONS: Final = 100_000
_WORDS: Final = INSTRUCTION_BYTES // 8
_OPS: Final[Mapping[str, ProtoOp]] = {
    "bool": ProtoOp.BOOL,
    "int32": ProtoOp.INT32,
    "sint32": ProtoOp.SINT32,
    "sfixed32": ProtoOp.SFIXED32,
    "uint32": ProtoOp.UINT32,
    "fixed32": ProtoOp.FIXED32,
    "int64": ProtoOp.INT64,
    "sint64": ProtoOp.SINT64,
    "sfixed64": ProtoOp.SFIXED64,
    "uint64": ProtoOp.UINT64,
    "fixed64": ProtoOp.FIXED64,
    "float": ProtoOp.FLOAT,
    "double": ProtoOp.DOUBLE,
    "string": ProtoOp.STRING,
    "bytes": ProtoOp.BYTES,
    "enum": ProtoOp.ENUM,
}
_LABELS: Final = {IMPLICIT: Label.IMPLICIT, REQUIRED: Label.REQUIRED, REPEATED: Label.REPEATED}
_LENGTH: Final = 2


def wire_type(kind: str) -> int:
    """Of a value of that kind, alone."""
    if kind in ("string", "bytes", "message"):
        return _LENGTH
    return 1 if kind in ("fixed64", "sfixed64", "double") else 5 if kind in ("fixed32", "sfixed32", "float") else 0


@dataclass(frozen=True, slots=True)
class ProtoProgram:
    """`index`: of the message in its file. `slot`: of the struct that holds it, -1: its fields are columns. `empties`:
    place and number, in `extra`, of the slots that none of its values fills."""

    index: int
    message: str
    slot: int
    block: int
    empties: tuple[int, int]
    code: npt.NDArray[np.int64]
    extra: npt.NDArray[np.int64]


@dataclass(slots=True)
class ProtoTexts:
    """Types of what becomes text, over all programs of a shape."""

    found: list[tuple[ProtoSchema, ProtoMessage]] = field(default_factory=list)

    def add(self, schema: ProtoSchema, message: ProtoMessage) -> int:
        self.found.append((schema, message))
        return len(self.found) - 1


def compile_programs(
    schema: ProtoSchema, flat: str, roots: Sequence[ColumnSlot], symbols: dict[int, list[str]], texts: ProtoTexts
) -> list[ProtoProgram]:
    """For slots that have all columns of the schema; the first is the one that most values are. Adds to the symbols of
    enum slots those that are new."""
    by_source = {root.column.source: root for root in roots}
    fields = [root for root in roots if root.column.source.isdecimal()]
    structs = [root for root in roots if not root.column.source.isdecimal()]
    programs = []
    if flat in schema.own:
        programs.append(_compiled(schema, flat, None, fields, structs, symbols, texts))
    for message in struct_messages(schema, flat, by_source.keys()):
        root = by_source[message.name]
        others = [each for each in roots if each is not root]
        programs.append(_compiled(schema, message.name, root, root.below, others, symbols, texts))
    return programs


def _compiled(
    schema: ProtoSchema,
    name: str,
    root: ColumnSlot | None,
    fields: Sequence[ColumnSlot],
    others: Sequence[ColumnSlot],
    symbols: dict[int, list[str]],
    texts: ProtoTexts,
) -> ProtoProgram:
    compiler = _Compiler(schema, symbols, texts)
    block = compiler.message(schema.messages[name], fields)
    empties = compiler.empties(others)
    compiler.finish_texts()
    slot = -1 if root is None else root.number
    return ProtoProgram(schema.own.index(name), name, slot, block, empties, compiler.code(), compiler.extra())


class _Compiler:
    def __init__(self, schema: ProtoSchema, symbols: dict[int, list[str]], texts: ProtoTexts) -> None:
        self._schema = schema
        self._symbols = symbols
        self._texts = texts
        self._code: list[list[int]] = []
        self._extra: list[int] = []
        self._text_calls: list[tuple[list[int], str]] = []

    def code(self) -> npt.NDArray[np.int64]:
        return np.array(self._code, np.int64).reshape(-1, _WORDS)

    def extra(self) -> npt.NDArray[np.int64]:
        return np.array(self._extra or [0], np.int64)

    def empties(self, slots: Sequence[ColumnSlot]) -> tuple[int, int]:
        return self._list([number for slot in slots for number in slot.empties()])

    def message(self, message: ProtoMessage, slots: Sequence[ColumnSlot]) -> int:
        """The block of a message whose fields are in these slots. What is in the slots of others is left empty."""
        by_source = {source_of(slot.column): slot for slot in slots}
        known = {str(each.number) for each in message.fields}
        head = self._block(message, self.empties([slot for name, slot in by_source.items() if name not in known]))
        members = {each.number: self._value_slot(each, by_source[str(each.number)]).number for each in message.fields}
        for place, each in enumerate(message.fields, head + 1):
            rest = [members[other.number] for other in message.fields if each.oneof and other.oneof == each.oneof]
            siblings = [number for number in rest if number != members[each.number]]
            self._field(self._code[place], each, by_source[str(each.number)], siblings)
        return head

    def _block(self, message: ProtoMessage, empties: tuple[int, int]) -> int:
        """A `HEAD` and room for the fields behind it."""
        head = len(self._code)
        if head + len(message.fields) >= MAX_INSTRUCTIONS:
            raise InvalidSchema("the schema is too large to be columns")
        self._code += [[0] * _WORDS for _ in range(1 + len(message.fields))]
        begin = self._code[head]
        begin[Word.OP], begin[Word.BLOCK] = ProtoOp.HEAD, len(message.fields)
        begin[Word.EMPTIES_AT], begin[Word.EMPTIES] = empties
        return head

    def _entry(self, field: ProtoField) -> ProtoMessage | None:
        message = self._schema.messages.get(field.type_name)
        return message if message is not None and message.is_entry else None

    def _value_slot(self, field: ProtoField, slot: ColumnSlot) -> ColumnSlot:
        """The one that a single value goes to: of a map its key."""
        return slot.below[0] if field.label == REPEATED else slot

    def _field(self, code: list[int], field: ProtoField, slot: ColumnSlot, siblings: Sequence[int]) -> None:
        own = self._value_slot(field, slot)
        self._common(code, field)
        code[Word.SLOT], code[Word.LIST], code[Word.WIDTH] = own.number, slot.number, own.width
        code[Word.SIBLINGS_AT], code[Word.SIBLINGS] = self._list(siblings)
        code[Word.EMPTIES_AT], code[Word.EMPTIES] = self.empties([slot])
        entry = self._entry(field)
        if entry is not None:
            code[Word.OP], code[Word.BLOCK] = ProtoOp.MAP, self._map_block(entry, slot)
        elif field.kind == "enum":
            code[Word.OP], code[Word.ENUM] = ProtoOp.ENUM, self._enum(field, own)
        elif field.kind != "message":
            code[Word.OP] = _OPS[field.kind]
        else:
            self._message_field(code, self._schema.messages[field.type_name], own)

    def _common(self, code: list[int], field: ProtoField) -> None:
        code[Word.NUMBER], code[Word.LABEL] = field.number, _LABELS.get(field.label, Label.OPTIONAL)
        code[Word.TAG], code[Word.ALTERNATIVE] = field.number << 3 | wire_type(field.kind), -1
        if field.label == REPEATED and wire_type(field.kind) != _LENGTH:
            code[Word.ALTERNATIVE] = field.number << 3 | _LENGTH
        if field.is_packed:
            code[Word.LABEL] = Label.PACKED
            code[Word.TAG], code[Word.ALTERNATIVE] = code[Word.ALTERNATIVE], code[Word.TAG]

    def _message_field(self, code: list[int], message: ProtoMessage, slot: ColumnSlot) -> None:
        if message.name == TIMESTAMP:
            code[Word.OP] = ProtoOp.TIMESTAMP
        elif message.name in WRAPPERS:
            code[Word.OP], code[Word.BLOCK] = ProtoOp.WRAPPER, self._block(message, self._list([]))
            [inner] = message.fields
            self._field(self._code[code[Word.BLOCK] + 1], inner, slot, [])
        elif slot.column.content != "json":
            code[Word.OP], code[Word.BLOCK] = ProtoOp.MESSAGE, self.message(message, slot.below)
        elif not message.fields:
            code[Word.OP] = ProtoOp.PRESENT
        else:
            code[Word.OP], code[Word.TEXT] = ProtoOp.TEXT, self._texts.add(self._schema, message)
            self._text_calls.append((code, message.name))

    def _map_block(self, entry: ProtoMessage, slot: ColumnSlot) -> int:
        head = self._block(entry, self._list([]))
        for place, (each, below) in enumerate(zip(entry.fields, slot.below, strict=True), head + 1):
            self._field(self._code[place], each, below, [])
            self._code[place][Word.LABEL] = Label.ALWAYS
        return head

    def _enum(self, field: ProtoField, slot: ColumnSlot) -> int:
        values = self._schema.enums[field.type_name]
        known = self._symbols.setdefault(slot.number, [])
        known += [symbol for symbol, _ in values if symbol not in known]
        places = {symbol: place for place, symbol in enumerate(known)}
        # Of several symbols with one number the first counts.
        by_number = {number: places[symbol] for symbol, number in reversed(values)}
        own = dict(values)
        numbers = sorted(by_number)
        back = [own.get(symbol, NO_NUMBER) for symbol in known]
        listed = [*numbers, *(by_number[number] for number in numbers), *back]
        return self._list([by_number.get(0, -1), len(numbers), len(known), *listed])[0]

    def _list(self, numbers: Sequence[int]) -> tuple[int, int]:
        """Position and number of a list in `extra`."""
        position = len(self._extra)
        self._extra += numbers
        return position, len(numbers)

    def finish_texts(self) -> None:
        """Blocks that check messages which become text: one for each type, which may refer to itself."""
        blocks: dict[str, int] = {}
        while self._text_calls:
            code, name = self._text_calls.pop()
            if name not in blocks:
                message = self._schema.messages[name]
                blocks[name] = self._block(message, (0, 0))
                for place, each in enumerate(message.fields, blocks[name] + 1):
                    inner = self._code[place]
                    self._common(inner, each)
                    inner[Word.OP] = _OPS.get(each.kind, ProtoOp.MESSAGE)
                    if each.kind == "message":
                        self._text_calls.append((inner, each.type_name))
            code[Word.BLOCK] = blocks[name]
