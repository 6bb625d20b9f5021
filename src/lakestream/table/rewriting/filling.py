"""Rows whose value stayed bytes get its columns, at the same place: only those change, and `_kind` and `_schema_id`,
which say so; and so do rows whose key has no columns where the topic asks for them. Offset, key, headers, checksum and
the value's bytes stay as they are."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.records import Binary
from lakestream.table.parquet.arrow import arrow_schema, bytes_in, offsets_in, typed_keys, valid_rows
from lakestream.table.parquet.codec import decoded, explained
from lakestream.table.shape import KEY_COLUMN, KIND_RAW, KIND_TYPED_AND_RAW, TableShape, key_shape

_SCOUTED: Final = ("_kind", "_value")
EXPLAINED_MOST: Final = 100
"""Values of a file whose reason is looked for, one by one."""
_REASONS_MOST: Final = 50
_MORE: Final = "for other reasons, which were not looked at one by one"

UnknownIds = Callable[[Binary], frozenset[int]]


@dataclass(slots=True)
class Scout:
    """Takes rows of a table with the columns that `scouted` names, and tells what could be filled. `unknown_key_ids`:
    None where keys stay as they are."""

    unknown_ids: UnknownIds
    unknown_key_ids: UnknownIds | None = None
    row_count: int = 0
    unknown: set[int] = field(default_factory=set)
    unknown_keys: set[int] = field(default_factory=set)

    def take(self, rows: pa.Table) -> None:
        stayed = _stayed(rows)
        self._take(rows["_value"], stayed, self.unknown_ids, self.unknown)
        if self.unknown_key_ids is not None:
            keys_stayed = _keys_stayed(rows)
            self._take(rows["_key"], keys_stayed, self.unknown_key_ids, self.unknown_keys)
            stayed |= keys_stayed
        self.row_count += int(stayed.sum())

    def _take(
        self, column: pa.ChunkedArray, stayed: npt.NDArray[np.bool_], unknown_ids: UnknownIds, unknown: set[int]
    ) -> None:
        found = column.combine_chunks().filter(pa.array(stayed))
        if len(found):
            unknown |= unknown_ids(Binary(offsets_in(found), bytes_in(found), valid_rows(found).astype(np.uint8)))


def scouted(shape: TableShape, *, keys: bool) -> tuple[str, ...]:
    """The columns that tell what could be filled of a table, with `keys` of those, too."""
    has_column = KEY_COLUMN in shape.names
    return (*_SCOUTED, *(("_key",) if keys else ()), *((KEY_COLUMN,) if keys and has_column else ()))


@dataclass(slots=True)
class Filler:
    """`reasons`: why rows stay as they are, each with how many. `keys`: those are filled, too."""

    shape: TableShape
    keys: bool = False
    filled: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    _explained: int = 0

    def fill(self, rows: pa.Table) -> pa.Table:
        """The rows, in the shape's own types."""
        before = self.filled
        filled, values = self._with_values(rows)
        if self.keys:
            filled, keys = self._with_keys(filled)
            self.filled = before + len(np.union1d(values, keys))
        return filled

    def _with_values(self, rows: pa.Table) -> tuple[pa.Table, npt.NDArray[np.intp]]:
        """And which rows have got columns."""
        nothing = np.empty(0, np.intp)
        places = np.flatnonzero(_stayed(rows))
        if not len(places):
            return rows, nothing
        values = rows["_value"].combine_chunks().take(pa.array(places))
        found = decoded(self.shape, values)
        if found is None:
            self.reasons["its topic keeps values as bytes: lakestream.value.format"] += len(places)
            return rows, nothing
        self._explain(values, found.is_typed, self.shape, "")
        typed = np.flatnonzero(found.is_typed)
        if not len(typed):
            return rows, nothing
        self.filled += len(typed)
        order = np.arange(rows.num_rows)
        order[places[typed]] = rows.num_rows + typed
        kinds = np.array(rows["_kind"].to_numpy())
        kinds[places[typed]] = KIND_TYPED_AND_RAW
        columns = {**found.columns, "_schema_id": found.schema_ids}
        return _changed(rows, columns, order, kinds, self.shape), places[typed]

    def _with_keys(self, rows: pa.Table) -> tuple[pa.Table, npt.NDArray[np.intp]]:
        places = np.flatnonzero(_keys_stayed(rows))
        if not len(places):
            return rows, places
        keys = rows["_key"].combine_chunks().take(pa.array(places))
        if KEY_COLUMN not in rows.column_names:
            self.reasons["the table knows no schema of its keys"] += len(places)
            return rows, places[:0]
        found = typed_keys(keys, self.shape)
        is_typed = valid_rows(found) != 0
        self._explain(keys, is_typed, key_shape(self.shape), "its key: ")
        typed = np.flatnonzero(is_typed)
        order = np.arange(rows.num_rows)
        order[places[typed]] = rows.num_rows + typed
        both = pa.chunked_array([*rows[KEY_COLUMN].chunks, found]).combine_chunks()
        at = rows.column_names.index(KEY_COLUMN)
        return rows.set_column(at, rows.schema.field(at), both.take(pa.array(order))), places[typed]

    def _explain(self, values: pa.Array, is_typed: npt.NDArray[np.bool_], shape: TableShape, what: str) -> None:
        """Words are for people: of very many values some are looked at."""
        left = np.flatnonzero(~is_typed)
        looked_at = left[: max(0, EXPLAINED_MOST - self._explained)]
        self._explained += len(looked_at)
        for place in looked_at.tolist():
            told = what + explained(shape, values[place].as_py())
            self.reasons[told if told in self.reasons or len(self.reasons) < _REASONS_MOST else _MORE] += 1
        if len(left) > len(looked_at):
            self.reasons[_MORE] += len(left) - len(looked_at)


def _stayed(rows: pa.Table) -> npt.NDArray[np.bool_]:
    stayed: npt.NDArray[np.bool_] = (rows["_kind"].to_numpy() == KIND_RAW) & rows["_value"].is_valid().to_numpy()
    return stayed


def _keys_stayed(rows: pa.Table) -> npt.NDArray[np.bool_]:
    stayed: npt.NDArray[np.bool_] = rows["_key"].is_valid().to_numpy()
    if KEY_COLUMN in rows.column_names:
        stayed = stayed & ~rows[KEY_COLUMN].is_valid().to_numpy()
    return stayed


def _changed(
    rows: pa.Table,
    columns: Mapping[str, pa.Array],
    order: npt.NDArray[np.int64],
    kinds: npt.NDArray[Any],
    shape: TableShape,
) -> pa.Table:
    """Each of these columns has its rows behind the present ones, from where `order` takes them."""
    schema = arrow_schema(shape)
    arrays = []
    for name in schema.names:
        kind = schema.field(name).type
        if name == "_kind":
            arrays.append(pa.array(kinds, kind))
        elif name in columns:
            both = pa.chunked_array([*rows[name].chunks, columns[name].cast(kind)], kind).combine_chunks()
            arrays.append(both.take(pa.array(order)))
        else:
            arrays.append(rows[name])
    return pa.Table.from_arrays(arrays, schema=schema)
