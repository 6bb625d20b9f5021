"""A schema as the program that takes its values apart into the columns of a table, and puts them together again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from lakestream.errors import InvalidSchema
from lakestream.schemas.avro import AvroSchema, AvroType
from lakestream.schemas.codecs.layout import BRANCH_WORDS, INSTRUCTION_WORDS, Op
from lakestream.schemas.codecs.slots import ColumnSlot
from lakestream.schemas.mapping import ROOT, names_of, source_of
from lakestream.schemas.mapping.avro import branches, is_decimal

MAX_INSTRUCTIONS: Final = 100_000
_NEVER: Final = -2
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Program:
    """`code` is instructions, `extra` the lists that they name (`codecs.layout`)."""

    code: npt.NDArray[np.int64]
    extra: npt.NDArray[np.int64]


@dataclass(slots=True)
class Texts:
    """Types of what becomes text, over all programs of a shape."""

    found: list[tuple[AvroSchema, AvroType]] = field(default_factory=list)

    def add(self, schema: AvroSchema, kind: AvroType) -> int:
        self.found.append((schema, kind))
        return len(self.found) - 1


def compile_program(
    schema: AvroSchema, roots: Sequence[ColumnSlot], symbols: dict[int, list[str]], texts: Texts
) -> Program:
    """For slots that have all columns of the schema. Adds to the symbols of enum slots those that are new."""
    compiler = _Compiler(schema, symbols, texts)
    root = schema.resolved(schema.root)
    if root.kind == "record" and root.below:
        compiler.fields(root, roots)
    else:
        compiler.fields(AvroType("record", names=(ROOT,), below=(root,)), roots)
    compiler.emit(Op.END)
    compiler.finish_texts()
    return compiler.program()


class _Compiler:
    def __init__(self, schema: AvroSchema, symbols: dict[int, list[str]], texts: Texts) -> None:
        self._schema = schema
        self._symbols = symbols
        self._texts = texts
        self._code: list[list[int]] = []
        self._extra: list[int] = []
        self._text_calls: list[tuple[int, AvroType]] = []
        self._routines: dict[str, int] = {}
        self._calls: list[tuple[int, str]] = []
        self._least = LeastBytes(schema)

    def program(self) -> Program:
        code = np.array(self._code, np.int64).reshape(-1, INSTRUCTION_WORDS)
        return Program(code, np.array(self._extra or [0], np.int64))

    def emit(self, op: Op, slot: int = 0, *operands: int) -> int:
        """Its place."""
        if len(self._code) >= MAX_INSTRUCTIONS:
            raise InvalidSchema("the schema is too large to be columns")
        padding = [0] * (INSTRUCTION_WORDS - 2 - len(operands))
        self._code.append([int(op), slot, *operands, *padding])
        return len(self._code) - 1

    @property
    def _here(self) -> int:
        return len(self._code)

    def _list(self, numbers: Sequence[int]) -> tuple[int, int]:
        """Position and number of a list in `extra`."""
        position = len(self._extra)
        self._extra += numbers
        return position, len(numbers)

    def _empty(self, slots: Sequence[ColumnSlot]) -> tuple[int, int]:
        return self._list([number for slot in slots for number in slot.empties()])

    def fields(self, record: AvroType, slots: Sequence[ColumnSlot]) -> None:
        by_name = {name: slot for slot in slots for name in reversed(names_of(slot.column))}
        missing = [slot for slot in slots if not any(name in record.names for name in names_of(slot.column))]
        if missing:
            self.emit(Op.EMPTY, 0, *self._empty(missing))
        for name, kind in zip(record.names, record.below, strict=True):
            self._value(self._schema.resolved(kind), by_name[name])

    def _value(self, kind: AvroType, slot: ColumnSlot) -> None:
        if kind.kind == "union":
            self._union(kind, slot)
        elif slot.column.content == "json":
            number = self._texts.add(self._schema, kind)
            self._text_calls.append((self.emit(Op.JSON, slot.number, 0, number), kind))
        elif kind.kind == "record":
            self.emit(Op.STRUCT, slot.number)
            self.fields(kind, slot.below)
        elif kind.kind == "null":
            self.emit(Op.EMPTY, 0, *self._empty([slot]))
        elif kind.kind in ("array", "map"):
            self._repeated(kind, slot)
        else:
            self._leaf(kind, slot)

    def _leaf(self, kind: AvroType, slot: ColumnSlot) -> None:
        number = slot.number
        if kind.kind == "enum":
            self._enum(kind, slot)
        elif is_decimal(kind):
            limit = 10**kind.precision
            size = kind.size if kind.kind == "fixed" else -1
            self.emit(Op.DECIMAL, number, size, _signed(limit >> 64), _signed(limit & _MASK))
        elif kind.kind == "fixed":
            self.emit(Op.UUID, number) if kind.logical == "uuid" else self.emit(Op.FIXED, number, kind.size)
        elif kind.kind == "int":
            self.emit(Op.INT_AS_LONG if slot.width == 8 else Op.INT, number)
        elif kind.logical in ("timestamp-millis", "local-timestamp-millis"):
            self.emit(Op.MILLIS, number)
        else:
            self.emit(_LEAVES[kind.kind], number)

    def _enum(self, kind: AvroType, slot: ColumnSlot) -> None:
        known = self._symbols.setdefault(slot.number, [])
        known += [symbol for symbol in kind.names if symbol not in known]
        there = {symbol: place for place, symbol in enumerate(known)}
        position, count = self._list([there[symbol] for symbol in kind.names])
        own = {symbol: place for place, symbol in enumerate(kind.names)}
        back, known_count = self._list([own.get(symbol, -1) for symbol in known])
        self.emit(Op.ENUM, slot.number, count, position, known_count, back)

    def _repeated(self, kind: AvroType, slot: ColumnSlot) -> None:
        is_map = kind.kind == "map"
        least = self._least.of(kind.below[0]) + is_map
        first = slot.below[0].number
        begin = self.emit(Op.ARRAY, slot.number, first, 0, least)
        if is_map:
            self.emit(Op.STRING, first)
        self._value(self._schema.resolved(kind.below[0]), slot.below[-1])
        self.emit(Op.NEXT, slot.number, first, begin + 1, least, int(is_map))
        self._code[begin][3] = self._here

    def _union(self, union: AvroType, slot: ColumnSlot) -> None:
        null = next((place for place, each in enumerate(union.below) if each.kind == "null"), -1)
        found = branches(self._schema, union)
        if len(found) <= 1:
            other = found[0][0] if found else _NEVER
            option = self.emit(Op.OPTION, slot.number, null, other, 0, *self._empty([slot]))
            if found:
                self._value(found[0][2], slot)
            self._code[option][4] = self._here
        elif slot.column.content == "json":
            # Null is the text `null`: the branch is a part of what is skipped.
            number = self._texts.add(self._schema, union)
            self._text_calls.append((self.emit(Op.JSON, slot.number, 0, number), union))
        else:
            self._struct(union, slot, null)

    def _struct(self, union: AvroType, slot: ColumnSlot, null: int) -> None:
        by_name = {source_of(child.column): child for child in slot.below}
        found = {number: (by_name[name], kind) for number, name, kind in branches(self._schema, union)}
        foreign = [child for child in slot.below if child not in [own for own, _ in found.values()]]
        position, _ = self._list([0, -1, 0, 0] * len(union.below))
        count = len(union.below)
        begin = self.emit(Op.UNION, slot.number, null, count, position, 0, *self._empty([slot]))
        ends = []
        for number, (child, kind) in found.items():
            at = position + number * BRANCH_WORDS
            self._extra[at : at + BRANCH_WORDS] = [self._here, child.number, *self._empty([child])]
            if foreign:
                self.emit(Op.EMPTY, 0, *self._empty(foreign))
            self._value(kind, child)
            ends.append(self.emit(Op.JUMP, 0, 0))
        for end in ends:
            self._code[end][2] = self._here
        self._code[begin][5] = self._here

    def finish_texts(self) -> None:
        """What checks the values that become text: a routine for each type with a name, which may call itself."""
        for place, kind in self._text_calls:
            self._code[place][2] = self._here
            self._skip(kind)
            self.emit(Op.RETURN)
        while self._calls:
            place, name = self._calls.pop()
            if name not in self._routines:
                self._routines[name] = self._here
                for each in self._schema.named[name].below:
                    self._skip(self._schema.resolved(each))
                self.emit(Op.RETURN)
            self._code[place][2] = self._routines[name]

    def _skip(self, kind: AvroType) -> None:
        if kind.kind == "record":
            self._calls.append((self.emit(Op.CALL, 0, 0), kind.name))
        elif kind.kind == "union":
            position, count = self._list([0] * len(kind.below))
            self.emit(Op.SKIP_UNION, 0, count, position)
            ends = []
            for number, each in enumerate(kind.below):
                self._extra[position + number] = self._here
                self._skip(self._schema.resolved(each))
                ends.append(self.emit(Op.JUMP, 0, 0))
            for end in ends:
                self._code[end][2] = self._here
        elif kind.kind in ("array", "map"):
            least = self._least.of(kind.below[0]) + (kind.kind == "map")
            begin = self.emit(Op.SKIP_ARRAY, 0, least, 0)
            if kind.kind == "map":
                self.emit(Op.SKIP_STRING)
            self._skip(self._schema.resolved(kind.below[0]))
            self.emit(Op.SKIP_NEXT, 0, least, begin + 1)
            self._code[begin][3] = self._here
        elif kind.kind == "fixed":
            self.emit(Op.SKIP_FIXED, 0, kind.size)
        elif kind.kind == "enum":
            self.emit(Op.SKIP_ENUM, 0, len(kind.names))
        elif kind.kind in _FIXED_SKIPS:
            self.emit(Op.SKIP_FIXED, 0, _FIXED_SKIPS[kind.kind])
        else:
            self.emit(_SKIPS[kind.kind])


_LEAVES: Final[Mapping[str, Op]] = {
    "boolean": Op.BOOLEAN,
    "long": Op.LONG,
    "float": Op.FLOAT,
    "double": Op.DOUBLE,
    "bytes": Op.BYTES,
    "string": Op.STRING,
}
_SKIPS: Final[Mapping[str, Op]] = {
    "boolean": Op.SKIP_BOOLEAN,
    "int": Op.SKIP_INT,
    "long": Op.SKIP_LONG,
    "bytes": Op.SKIP_BYTES,
    "string": Op.SKIP_STRING,
}
_FIXED_SKIPS: Final = {"null": 0, "float": 4, "double": 8}
_LEAST: Final = {"null": 0, "float": 4, "double": 8}


class LeastBytes:
    """How few bytes a value of a type can take: bounds how many of them there can be."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._known: dict[str, int] = {}

    def of(self, found: AvroType) -> int:
        kind = self._schema.resolved(found)
        if kind.kind == "fixed":
            return kind.size
        if kind.kind != "record":
            return _LEAST.get(kind.kind, 1)
        if kind.name not in self._known:
            # A record inside itself without a way out has no value at all.
            self._known[kind.name] = 0
            self._known[kind.name] = sum(map(self.of, kind.below))
        return self._known[kind.name]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
