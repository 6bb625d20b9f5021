"""Rows whose value stayed bytes get its columns, at the same place: only those change, and `_kind` and `_schema_id`,
which say so. Offset, key, headers, checksum and the value's bytes stay as they are."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.records import Binary
from lakestream.table.parquet.arrow import arrow_schema, bytes_in, offsets_in, valid_rows
from lakestream.table.parquet.codec import decoded, explained
from lakestream.table.shape import KIND_RAW, KIND_TYPED_AND_RAW, TableShape

SCOUTED: Final = ("_kind", "_value")
EXPLAINED_MOST: Final = 100
"""Values of a file whose reason is looked for, one by one."""
_REASONS_MOST: Final = 50
_MORE: Final = "for other reasons, which were not looked at one by one"

UnknownIds = Callable[[Binary], frozenset[int]]


@dataclass(slots=True)
class Scout:
    """Takes rows of a table with the columns `SCOUTED`, and tells what could be filled."""

    unknown_ids: UnknownIds
    row_count: int = 0
    unknown: set[int] = field(default_factory=set)

    def take(self, rows: pa.Table) -> None:
        values = rows["_value"].combine_chunks().filter(pa.array(_stayed(rows)))
        self.row_count += len(values)
        if len(values):
            found = Binary(offsets_in(values), bytes_in(values), valid_rows(values).astype(np.uint8))
            self.unknown |= self.unknown_ids(found)


@dataclass(slots=True)
class Filler:
    """`reasons`: why rows stay as they are, each with how many."""

    shape: TableShape
    filled: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    _explained: int = 0

    def fill(self, rows: pa.Table) -> pa.Table:
        """The rows, in the shape's own types."""
        places = np.flatnonzero(_stayed(rows))
        if not len(places):
            return rows
        values = rows["_value"].combine_chunks().take(pa.array(places))
        found = decoded(self.shape, values)
        if found is None:
            self.reasons["its topic keeps values as bytes: lakestream.value.format"] += len(places)
            return rows
        self._explain(values, found.is_typed)
        typed = np.flatnonzero(found.is_typed)
        if not len(typed):
            return rows
        self.filled += len(typed)
        order = np.arange(rows.num_rows)
        order[places[typed]] = rows.num_rows + typed
        kinds = np.array(rows["_kind"].to_numpy())
        kinds[places[typed]] = KIND_TYPED_AND_RAW
        return _changed(rows, {**found.columns, "_schema_id": found.schema_ids}, order, kinds, self.shape)

    def _explain(self, values: pa.Array, is_typed: npt.NDArray[np.bool_]) -> None:
        """Words are for people: of very many values some are looked at."""
        left = np.flatnonzero(~is_typed)
        looked_at = left[: max(0, EXPLAINED_MOST - self._explained)]
        self._explained += len(looked_at)
        for place in looked_at.tolist():
            told = explained(self.shape, values[place].as_py())
            self.reasons[told if told in self.reasons or len(self.reasons) < _REASONS_MOST else _MORE] += 1
        if len(left) > len(looked_at):
            self.reasons[_MORE] += len(left) - len(looked_at)


def _stayed(rows: pa.Table) -> npt.NDArray[np.bool_]:
    stayed: npt.NDArray[np.bool_] = (rows["_kind"].to_numpy() == KIND_RAW) & rows["_value"].is_valid().to_numpy()
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
