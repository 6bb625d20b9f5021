"""Columns of Arrow as the leaves that Parquet stores: values without nulls, and levels that say where they belong.

The definition level of an entry tells how much of the way down to the leaf is there, its repetition level at which
list it goes on; levels that are the same in every entry are one number. Flat columns, and nested ones without a single
value, take no pass over their rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.table.parquet.arrow import offsets_in, valid_rows

Levels = int | npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

LIST_NODES: Final = ("list", "element")
"""What stands between a list and what is in it, in paths of columns."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """`values` has no null. Row i begins at entry `row_entries[i]` and value `row_values[i]`, where the one before
    ends; None: entries, or values, are the rows."""

    path: tuple[str, ...]
    field: pa.Field
    rows: int
    definition: Levels
    repetition: Levels
    max_definition: int
    max_repetition: int
    values: pa.Array
    row_entries: Places | None
    row_values: Places | None

    @property
    def entry_count(self) -> int:
        return self.rows if self.row_entries is None else int(self.row_entries[-1])


@dataclass(frozen=True, slots=True)
class _Node:
    """On the way down: of each entry its levels and where in the array at hand it is, -1 if it ended above."""

    definition: npt.NDArray[np.uint8]
    repetition: npt.NDArray[np.uint8]
    index: Places
    max_definition: int = 0
    max_repetition: int = 0


def shred(field: pa.Field, array: pa.Array) -> list[Leaf]:
    """The leaves of a column in the order in which Parquet has them."""
    if not field.nullable and array.null_count:
        raise ValueError(f"column {field.name} has nulls and may have none")
    if not pa.types.is_nested(field.type):
        return [_flat(field, array)]
    if array.null_count == len(array):
        return [*_absent((field.name,), field, len(array), int(field.nullable), 0)]
    rows = len(array)
    levels = np.zeros(rows, np.uint8)
    return [*_walk((field.name,), field, array, _Node(levels, levels, np.arange(rows, dtype=np.int64)), rows)]


def leaves_of(field: pa.Field) -> list[pa.Field]:
    """The fields of the leaves, without any rows."""
    return [leaf.field for leaf in _absent((field.name,), field, 0, int(field.nullable), 0)]


def _flat(field: pa.Field, array: pa.Array) -> Leaf:
    depth = int(field.nullable)
    rows = len(array)
    nulls = array.null_count
    if not nulls:
        return Leaf((field.name,), field, rows, depth, 0, depth, 0, array, None, None)
    if nulls == rows:
        [leaf] = _absent((field.name,), field, rows, depth, 0)
        return leaf
    valid = valid_rows(array)
    counts = np.zeros(rows + 1, np.int64)
    np.cumsum(valid, out=counts[1:])
    return Leaf((field.name,), field, rows, valid, 0, depth, 0, array.drop_null(), None, counts)


def _absent(path: tuple[str, ...], field: pa.Field, rows: int, definition: int, repetition: int) -> Iterator[Leaf]:
    """The leaves of a column in whose rows nothing is. `definition` counts the field itself if it may be null."""
    kind = field.type
    if pa.types.is_list(kind):
        inner = kind.value_field
        yield from _absent((*path, *LIST_NODES), inner, rows, definition + 1 + inner.nullable, repetition + 1)
    elif pa.types.is_struct(kind):
        for child in kind:
            yield from _absent((*path, child.name), child, rows, definition + child.nullable, repetition)
    else:
        empty = pa.array([], kind)
        none = np.zeros(rows + 1, np.int64)
        yield Leaf(path, field, rows, 0, 0, definition, repetition, empty, None, none)


def _walk(path: tuple[str, ...], field: pa.Field, array: pa.Array, node: _Node, rows: int) -> Iterator[Leaf]:
    if field.nullable:
        node = _defined(node, array)
    kind = field.type
    if pa.types.is_list(kind):
        inner = kind.value_field
        yield from _walk((*path, *LIST_NODES), inner, array.values, _expanded(node, array), rows)
    elif pa.types.is_struct(kind):
        for place, child in enumerate(kind):
            yield from _walk((*path, child.name), child, array.field(place), node, rows)
    else:
        yield _leaf(path, field, array, node, rows)


def _defined(node: _Node, array: pa.Array) -> _Node:
    """One step down into something that may be null."""
    there = node.index >= 0
    if array.null_count:
        there[there] = valid_rows(array)[node.index[there]] != 0
    index = np.where(there, node.index, -1)
    definition = node.definition + there.astype(np.uint8)
    return replace(node, definition=definition, index=index, max_definition=node.max_definition + 1)


def _expanded(node: _Node, array: pa.Array) -> _Node:
    """One step down into a list: an entry for each element, and one for a list that is empty or not there."""
    offsets = offsets_in(array).astype(np.int64)
    there = node.index >= 0
    at = np.where(there, node.index, 0)
    starts = offsets[at]
    sizes = np.where(there, offsets[np.minimum(at + 1, len(offsets) - 1)] - starts, 0)
    counts = np.maximum(sizes, 1)
    firsts = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(firsts, counts)
    filled = np.repeat(sizes > 0, counts)
    repetition = np.where(steps > 0, np.uint8(node.max_repetition + 1), np.repeat(node.repetition, counts))
    return _Node(
        np.repeat(node.definition, counts) + filled.astype(np.uint8),
        repetition.astype(np.uint8),
        np.where(filled, np.repeat(starts, counts) + steps, -1),
        node.max_definition + 1,
        node.max_repetition + 1,
    )


def _leaf(path: tuple[str, ...], field: pa.Field, array: pa.Array, node: _Node, rows: int) -> Leaf:
    there = node.index >= 0
    values = array.take(pa.array(node.index[there]))
    counts = np.zeros(len(there) + 1, np.int64)
    np.cumsum(there, out=counts[1:])
    entries = np.append(np.flatnonzero(node.repetition == 0), len(there)).astype(np.int64)
    return Leaf(
        path,
        field,
        rows,
        node.definition,
        node.repetition,
        node.max_definition,
        node.max_repetition,
        values,
        entries,
        counts[entries],
    )
