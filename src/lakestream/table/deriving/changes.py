"""What rows of a stream change in its table of latest rows: of each key the newest record, or that it is gone.

The newest is the one with the greatest value in the order column; without one, or where it says nothing, the one
farthest on in its partition. A record without value is a tombstone. It deletes the row of its key; where rows are
named by columns of the value, which a tombstone does not have, those whose record had the tombstone's key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.table.deriving.keys import key_bytes
from lakestream.table.deriving.recipe import AFTER, BEFORE, KEY, OPERATION, DerivedShape, struct_fields
from lakestream.table.parquet.arrow import arrow_schema, canonical
from lakestream.table.shape import KIND_TYPED, TableColumn, TableShape

_UPSERTS: Final = pa.array(["c", "u", "r"])
_DELETE: Final = "d"
_DELETED: Final = "\0deleted"
"""Of a candidate, beside the table's columns: no name that a column can have."""


@dataclass(frozen=True, slots=True)
class RowChanges:
    """`rows`: those that are to be, one of a key. `gone`: keys, with the order column, that have no row any more.
    `record_keys`: rows that have such a `_key` go, unless they are among `rows`. `skipped`: records that say nothing of
    any row: without a key, or no change events where they should be."""

    rows: pa.Table
    gone: pa.Table
    record_keys: pa.Array
    skipped: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.rows.num_rows or self.gone.num_rows or len(self.record_keys))


def source_columns(derived: DerivedShape, stream: TableShape) -> tuple[str, ...]:
    """What is to be read of the stream's rows."""
    own = (column.name for column in derived.columns.columns if column.name in stream.names)
    if derived.recipe.transform == "debezium":
        own = (*(name for name in own if name.startswith("_")), BEFORE, AFTER, OPERATION)  # type: ignore[assignment]
    found = dict.fromkeys((*own, "_kind", "_value", KEY, "_stream_partition", "_offset"))
    return tuple(name for name in found if name in stream.names)


def changes(tables: Sequence[pa.Table], derived: DerivedShape, stream: TableShape) -> RowChanges:
    """`tables` have `source_columns` in the stream's types, and each record once."""
    schema = arrow_schema(derived.columns)
    found = [_candidates(table, derived, stream) for table in tables if table.num_rows]
    if not found:
        empty = schema.empty_table()
        return RowChanges(empty, empty.select(_compared(derived)), pa.array([], pa.binary()))
    rows = pa.concat_tables([candidates for candidates, _ in found])
    tombstones = pa.concat_tables([marks for _, marks in found])
    records = sum(table.num_rows for table in tables)
    skipped = records - rows.num_rows - tombstones.num_rows
    newest = _newest(rows, derived)
    gone = _with_tombstones(newest, tombstones)
    return RowChanges(
        rows=newest.filter(pc.invert(gone)).select(schema.names),
        gone=newest.filter(gone).select(_compared(derived)),
        record_keys=pc.unique(tombstones.column(KEY).combine_chunks()),
        skipped=skipped,
    )


def _compared(derived: DerivedShape) -> list[str]:
    recipe = derived.recipe
    return [*recipe.keys, *([recipe.order] if recipe.order and recipe.order not in recipe.keys else [])]


def _candidates(table: pa.Table, derived: DerivedShape, stream: TableShape) -> tuple[pa.Table, pa.Table]:
    """Records that name a row, each with whether it deletes it, and tombstones that name a record's key."""
    typed = pc.equal(table.column("_kind"), KIND_TYPED)
    is_tombstone = pc.and_(table.column("_value").is_null(), pc.invert(typed))
    if derived.recipe.transform == "debezium":
        rows, is_upsert, is_delete = _unwrapped(table, derived, stream)
    else:
        rows, is_delete = table, pa.chunked_array([pa.array(np.zeros(table.num_rows, np.bool_))])
        is_upsert = pc.invert(is_tombstone)
    rows = canonical(rows, derived.columns.names, derived.columns)
    named = reduce(pc.and_, [rows.column(name).is_valid() for name in derived.recipe.keys])
    by_record_key = pc.or_(is_tombstone, pc.and_(is_delete, pc.invert(named)))
    if derived.recipe.keys == (KEY,):
        deletes, marks = pc.or_(is_tombstone, is_delete), None
    else:
        deletes, marks = is_delete, pc.and_(by_record_key, table.column(KEY).is_valid())
    taken = pc.and_(named, pc.or_(pc.and_(is_upsert, pc.invert(is_tombstone)), deletes))
    rows = rows.append_column(_DELETED, pc.fill_null(deletes, False)).filter(pc.fill_null(taken, False))
    places = table.select(["_stream_partition", "_offset", KEY])
    none = pa.array(np.zeros(table.num_rows, np.bool_))
    return rows, places.filter(none if marks is None else pc.fill_null(marks, False))


def _unwrapped(
    table: pa.Table, derived: DerivedShape, stream: TableShape
) -> tuple[pa.Table, pa.ChunkedArray, pa.ChunkedArray]:
    """The images in change events as columns; which are to be, and which are gone. What is gone has its last image."""
    operation, after = table.column(OPERATION), table.column(AFTER)
    is_delete = pc.fill_null(pc.equal(operation, _DELETE), False)
    is_upsert = pc.and_(pc.is_in(operation, value_set=_UPSERTS), after.is_valid())
    compared = _compared(derived)
    before_names = {field.name for field in _before(stream)} if BEFORE in table.column_names else set()
    columns = {name: table.column(name) for name in table.column_names if name.startswith("_")}
    for field in struct_fields(stream, AFTER):
        column = pc.struct_field(after, [field.name])
        if field.name in compared and field.name in before_names:
            before = pc.struct_field(table.column(BEFORE), [field.name]).cast(column.type)
            column = pc.if_else(is_delete, before, column)
        columns[field.name] = column
    return pa.table(columns), is_upsert, is_delete


def _before(stream: TableShape) -> tuple[TableColumn, ...]:
    column = next(column for column in stream.value_columns if column.name == BEFORE)
    return column.below if column.kind == "struct" else ()


def _newest(rows: pa.Table, derived: DerivedShape) -> pa.Table:
    """One of each key."""
    recipe = derived.recipe
    order = [(name, "ascending") for name in ([recipe.order] if recipe.order else [])]
    order += [("_offset", "ascending"), ("_stream_partition", "ascending")]
    # Where the order says nothing the record counts as the newest: a tombstone has no columns.
    rows = rows.take(pc.sort_indices(rows, sort_keys=order))
    found = pa.table({"key": key_bytes(rows, derived.keys), "place": np.arange(rows.num_rows)})
    newest = found.group_by("key", use_threads=False).aggregate([("place", "max")])
    return rows.take(newest.column("place_max"))


def _with_tombstones(newest: pa.Table, tombstones: pa.Table) -> pa.ChunkedArray:
    """Which of the newest are gone: those that say so, and those behind which their partition has a tombstone of their
    record's key."""
    gone = newest.column(_DELETED)
    if not tombstones.num_rows:
        return gone
    marks = pa.table({"key": _record_keys(tombstones), "offset": tombstones.column("_offset")})
    last = marks.group_by("key", use_threads=False).aggregate([("offset", "max")])
    places = pc.index_in(_record_keys(newest), value_set=last.column("key").combine_chunks())
    marked = last.column("offset_max").combine_chunks().take(places)
    return pc.or_(gone, pc.fill_null(pc.greater(marked, newest.column("_offset")), False))


_RECORD_KEY: Final = (TableColumn(1, "_stream_partition", "int"), TableColumn(6, KEY, "binary"))


def _record_keys(rows: pa.Table) -> pa.Array:
    return key_bytes(rows, _RECORD_KEY)
