"""The slots of a shape's value columns, their memory, and Arrow arrays out of it and back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.records.native import address
from lakestream.schemas.codecs.layout import SLOT_WORDS, SlotField
from lakestream.table.parquet.arrow import arrow_schema, bytes_in, offsets_in, valid_rows
from lakestream.table.shape import Kind, TableColumn, TableShape

Array = npt.NDArray[Any]
_WIDTHS: Final[dict[Kind, int]] = {
    "boolean": 1,
    "int": 4,
    "long": 8,
    "float": 4,
    "double": 8,
    "decimal": 16,
    "date": 4,
    "timestamp": 8,
    "timestamptz": 8,
}
_ENUM_WIDTH: Final = 4
MAX_ENTRIES: Final = 0x7FFFFFFF - 64


@dataclass(frozen=True, slots=True)
class ColumnSlot:
    """`width` as in `SlotField.WIDTH`. `is_repeated`: an entry of the parent has any number of its entries."""

    number: int
    column: TableColumn
    kind: pa.DataType
    width: int
    parent: int
    is_repeated: bool
    below: "tuple[ColumnSlot, ...]"

    @property
    def has_bytes(self) -> bool:
        return self.column.kind in ("string", "binary") and not self.width

    @property
    def has_offsets(self) -> bool:
        return self.has_bytes or self.column.kind in ("list", "map")

    def empties(self) -> Iterator[int]:
        """The slots that get a null where it is one."""
        yield self.number
        if self.column.kind == "struct":
            for child in self.below:
                yield from child.empties()

    def all(self) -> "Iterator[ColumnSlot]":
        yield self
        for child in self.below:
            yield from child.all()


def slots_of(shape: TableShape) -> tuple[ColumnSlot, ...]:
    """Of the value columns, in their order. One that tells how the value was written is none."""
    schema = arrow_schema(shape)
    found: list[ColumnSlot] = []
    number = 0
    for column in shape.value_columns:
        if column.content == "format":
            continue
        slot = _slot(column, schema.field(column.name).type, number, -1, is_repeated=False)
        number += sum(1 for _ in slot.all())
        found.append(slot)
    return tuple(found)


def _slot(column: TableColumn, kind: pa.DataType, number: int, parent: int, *, is_repeated: bool) -> ColumnSlot:
    repeats = column.kind in ("list", "map")
    children: list[ColumnSlot] = []
    after = number + 1
    for child, below in zip(column.below, _kinds_below(kind), strict=True):
        children.append(_slot(child, below, after, number, is_repeated=repeats))
        after += sum(1 for _ in children[-1].all())
    width = _ENUM_WIDTH if column.content == "enum" else _WIDTHS.get(column.kind, 0)
    return ColumnSlot(number, column, kind, width, parent, is_repeated, tuple(children))


def _kinds_below(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_struct(kind):
        return [field.type for field in kind]
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.value_type] if pa.types.is_list(kind) else []


class SlotMemory:
    """The arrays of all slots and the table of their addresses, `table`, as the kernels want it."""

    def __init__(self, roots: Sequence[ColumnSlot]) -> None:
        self._roots = roots
        self._slots = [slot for root in roots for slot in root.all()]
        self.table: npt.NDArray[np.int64] = np.zeros((max(1, len(self._slots)), SLOT_WORDS), np.int64)
        self._arrays: dict[tuple[int, SlotField], Array] = {}

    def reserve(self, rows: int, byte_count: int) -> None:
        """For so many rows of so many bytes: what takes no more entries than there are rows will not have to grow. The
        system backs only the pages that are written."""
        for slot in self._slots:
            entries = rows if not _is_nested(slot, self._slots) else max(64, min(2 * rows, byte_count))
            self._resize(slot, entries, max(64, byte_count) if slot.has_bytes else 0)

    def grow(self, number: int, *, entries: bool) -> bool:
        """Twice the room for a slot that has none left for entries, or else for bytes. False: there cannot be more."""
        slot, row = self._slots[number], self.table[number]
        counts = {which: int(row[which]) for which in (SlotField.CAPACITY, SlotField.BYTE_CAPACITY)}
        which = SlotField.CAPACITY if entries else SlotField.BYTE_CAPACITY
        if counts[which] >= MAX_ENTRIES:
            return False
        counts[which] = min(2 * counts[which] + 64, MAX_ENTRIES)
        self._resize(slot, counts[SlotField.CAPACITY], counts[SlotField.BYTE_CAPACITY])
        return True

    def _resize(self, slot: ColumnSlot, entries: int, byte_count: int) -> None:
        row = self.table[slot.number]
        self._place(slot, SlotField.VALID, entries)
        if slot.has_offsets:
            offsets = self._place(slot, SlotField.OFFSETS, (entries + 1) * 4)
            if not row[SlotField.CAPACITY]:
                offsets[:4] = 0
        if slot.width or slot.has_bytes:
            self._place(slot, SlotField.DATA, entries * slot.width if slot.width else byte_count)
        row[SlotField.CAPACITY], row[SlotField.BYTE_CAPACITY], row[SlotField.WIDTH] = entries, byte_count, slot.width

    def _place(self, slot: ColumnSlot, which: SlotField, size: int) -> Array:
        array: Array = np.empty(max(size, 1), np.uint8)
        before = self._arrays.get((slot.number, which))
        if before is not None:
            array[: len(before)] = before
        self._arrays[slot.number, which] = array
        self.table[slot.number, which] = address(array)
        return array

    def set_arrays(self, slot: ColumnSlot, arrays: Mapping[SlotField, Array]) -> None:
        """Memory that is somebody else's, to read from."""
        for which, array in arrays.items():
            self._arrays[slot.number, which] = array
            self.table[slot.number, which] = address(array)

    def arrow(self, symbols: Mapping[int, Sequence[str]]) -> dict[str, pa.Array]:
        """The columns as they are filled, by name. Shares the memory. `symbols`: of enums, by slot."""
        return {root.column.name: self._arrow(root, symbols) for root in self._roots}

    def _arrow(self, slot: ColumnSlot, symbols: Mapping[int, Sequence[str]]) -> pa.Array:
        entries = int(self.table[slot.number, SlotField.COUNT])
        valid = self._arrays[slot.number, SlotField.VALID][:entries]
        bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        children = [self._arrow(child, symbols) for child in slot.below]
        kind, column = slot.kind, slot.column
        if column.kind == "struct":
            return pa.Array.from_buffers(kind, entries, [bitmap], children=children)
        offsets = pa.py_buffer(self._arrays[slot.number, SlotField.OFFSETS]) if slot.has_offsets else None
        if column.kind == "map":
            pairs = pa.StructArray.from_arrays(children, fields=[kind.key_field, kind.item_field])
            return pa.Array.from_buffers(kind, entries, [bitmap, offsets], children=[pairs])
        if column.kind == "list":
            return pa.Array.from_buffers(kind, entries, [bitmap, offsets], children=children)
        data = self._arrays[slot.number, SlotField.DATA]
        if column.content == "enum":
            places = pa.Array.from_buffers(pa.int32(), entries, [bitmap, pa.py_buffer(data)])
            named = pa.array(symbols.get(slot.number, ()), pa.string())
            return pa.DictionaryArray.from_arrays(places, named).cast(pa.string())
        if column.kind == "boolean":
            data = np.packbits(data[:entries], bitorder="little")
        buffers = [bitmap, offsets, pa.py_buffer(data)] if slot.has_bytes else [bitmap, pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, entries, buffers)


def _is_nested(slot: ColumnSlot, slots: Sequence[ColumnSlot]) -> bool:
    """Below something that repeats it."""
    return slot.is_repeated or (slot.parent >= 0 and _is_nested(slots[slot.parent], slots))


def memory_of(
    roots: Sequence[ColumnSlot], columns: Mapping[str, pa.Array], symbols: Mapping[int, Sequence[str]]
) -> SlotMemory:
    """The arrays of columns, in the shape's types, as slots to encode from. Keep them as long as this."""
    memory = SlotMemory(roots)
    for root in roots:
        _read_arrow(memory, root, columns[root.column.name], symbols)
    return memory


def _read_arrow(memory: SlotMemory, slot: ColumnSlot, array: pa.Array, symbols: Mapping[int, Sequence[str]]) -> None:
    arrays: dict[SlotField, Array] = {}
    kind = slot.column.kind
    if array.null_count or len(array) == 0:
        arrays[SlotField.VALID] = valid_rows(array)
    if slot.has_offsets:
        arrays[SlotField.OFFSETS] = offsets_in(array)
    if slot.has_bytes:
        arrays[SlotField.DATA] = bytes_in(array)
    elif slot.column.content == "enum":
        places = pc.index_in(array, value_set=pa.array(symbols.get(slot.number, ()), pa.string()))
        arrays[SlotField.DATA] = np.ascontiguousarray(pc.fill_null(places, -1).to_numpy(zero_copy_only=False), np.int32)
    elif kind == "boolean":
        arrays[SlotField.DATA] = np.ascontiguousarray(
            pc.fill_null(array, False).to_numpy(zero_copy_only=False), np.uint8
        )
    elif slot.width:
        start = array.offset * slot.width
        data = array.buffers()[1] if len(array) else None
        whole = np.frombuffer(data, np.uint8) if data is not None and len(data) else np.zeros(16, np.uint8)
        arrays[SlotField.DATA] = whole[start:]
    memory.set_arrays(slot, arrays)
    for child, below in zip(slot.below, _children(array, kind), strict=True):
        _read_arrow(memory, child, below, symbols)


def _children(array: pa.Array, kind: Kind) -> list[pa.Array]:
    if kind == "struct":
        return [array.field(place) for place in range(array.type.num_fields)]
    if kind == "map":
        return [array.keys, array.items]
    return [array.values] if kind == "list" else []
