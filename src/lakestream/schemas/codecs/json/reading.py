"""A schema as the program that takes the texts of its values apart into the columns of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lakestream.schemas.codecs.kernels.json.layout import ReadOp
from lakestream.schemas.codecs.layout import INSTRUCTION_WORDS
from lakestream.schemas.codecs.slots import ColumnSlot
from lakestream.schemas.json import JsonType, JsonTypeName
from lakestream.schemas.mapping import ROOT, source_of

_OPS: Final[Mapping[JsonTypeName, ReadOp]] = {
    "object": ReadOp.OBJECT,
    "array": ReadOp.LIST,
    "map": ReadOp.MAP,
    "string": ReadOp.STRING,
    "long": ReadOp.LONG,
    "double": ReadOp.DOUBLE,
    "boolean": ReadOp.BOOLEAN,
    "date": ReadOp.DATE,
    "time": ReadOp.TIME,
    "json": ReadOp.JSON,
}


@dataclass(frozen=True, slots=True)
class ReadProgram:
    """As `kernels.json.layout` has it. `hint_count`: how many numbers the kernel keeps what it expects in."""

    code: npt.NDArray[np.int64]
    extra: npt.NDArray[np.int64]
    texts: npt.NDArray[np.uint8]
    hints: npt.NDArray[np.int64]


def compile_reader(root: JsonType, roots: Sequence[ColumnSlot]) -> ReadProgram:
    """For slots that have all columns of the schema."""
    compiler = _Compiler()
    if root.kind == "object":
        compiler.object(root, -1, roots, ())
    else:
        [slot] = [each for each in roots if source_of(each.column) == ROOT]
        compiler.value(root, slot)
        compiler.set_foreign(0, [each for each in roots if each is not slot])
    return compiler.program()


class _Compiler:
    def __init__(self) -> None:
        self._code: list[list[int]] = []
        self._extra: list[int] = []
        self._texts = bytearray()
        self._hints: list[int] = []

    def program(self) -> ReadProgram:
        return ReadProgram(
            np.array(self._code, np.int64).reshape(-1, INSTRUCTION_WORDS),
            np.array(self._extra or [0], np.int64),
            np.frombuffer(bytes(self._texts) + b"\0", np.uint8),
            np.array(self._hints or [0], np.int64),
        )

    def value(self, found: JsonType, slot: ColumnSlot) -> int:
        """The place of its instruction."""
        op = ReadOp.JSON if slot.column.content == "json" else _OPS[found.kind]
        if op is ReadOp.OBJECT:
            return self.object(found, slot.number, slot.below, (slot,))
        place = self._emit(op, slot.number, (slot,))
        if op in (ReadOp.LIST, ReadOp.MAP):
            self._code[place][2:4] = [self.value(found.below[0], slot.below[-1]), slot.below[0].number]
        return place

    def object(self, found: JsonType, number: int, slots: Sequence[ColumnSlot], empty: Sequence[ColumnSlot]) -> int:
        place = self._emit(ReadOp.OBJECT, number, empty)
        by_name = {source_of(slot.column): slot for slot in slots}
        own = [by_name[name] for name in found.names]
        members: list[int] = []
        for name, below, slot in zip(found.names, found.below, own, strict=True):
            key = name.encode(errors="surrogatepass")
            position = len(self._texts)
            self._texts += key
            members += [position, len(key), self.value(below, slot), slot.number]
        self._extra.append(len(self._hints))
        self._code[place][2:4] = [len(self._extra), len(own)]
        self._extra += members
        # First the first one is expected, then what follows in the schema.
        self._hints += range(len(own) + 1)
        numbers = {slot.number for slot in own}
        self.set_foreign(place, [slot for slot in slots if slot.number not in numbers])
        return place

    def set_foreign(self, place: int, slots: Sequence[ColumnSlot]) -> None:
        self._code[place][4:6] = self._empties(slots)

    def _emit(self, op: ReadOp, number: int, empty: Sequence[ColumnSlot]) -> int:
        self._code.append([int(op), number, 0, 0, 0, 0, *self._empties(empty)])
        return len(self._code) - 1

    def _empties(self, slots: Sequence[ColumnSlot]) -> list[int]:
        """Position and number, in `extra`."""
        found = [number for slot in slots for number in slot.empties()]
        position = len(self._extra)
        self._extra += found
        return [position, len(found)]
