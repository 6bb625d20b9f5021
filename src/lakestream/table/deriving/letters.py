"""Dead letters: rows of a typed stream whose value could not be decoded, with the reason."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.table.deriving.changes import RowChanges
from lakestream.table.deriving.recipe import DETECTED, REASON, DerivedShape
from lakestream.table.parquet.arrow import arrow_schema, canonical, places_from_arrow
from lakestream.table.parquet.codec import explained
from lakestream.table.shape import KIND_RAW, KIND_TYPED, KIND_TYPED_AND_RAW, TableShape

KIND_COLUMNS: Final = ("_stream_partition", "_offset", "_kind")
_OFFSET_BITS: Final = 40
LETTER_COLUMNS: Final = (
    "_stream_partition",
    "_offset",
    "_timestamp",
    "_key",
    "_headers",
    "_value",
    "_schema_id",
    "_kind",
)


def place_numbers(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Partition and offset of each row as one number."""
    partition, offset, _ = places_from_arrow(rows)
    return (partition.astype(np.int64) << _OFFSET_BITS) | offset


def answered(rows: pa.Table, wanted: npt.NDArray[np.int64]) -> pa.Table:
    """Of rows of the stream's table with `KIND_COLUMNS` the places, of those wanted, whose value is in columns now.
    Blocking."""
    typed = np.isin(rows.column("_kind").to_numpy(), (KIND_TYPED, KIND_TYPED_AND_RAW))
    return rows.filter(pa.array(typed & np.isin(place_numbers(rows), wanted))).select(["_stream_partition", "_offset"])


def only_gone(tables: Sequence[pa.Table], derived: DerivedShape) -> RowChanges:
    """Takes the letters at these places away."""
    schema = arrow_schema(derived.columns)
    keys = pa.schema([schema.field(name) for name in derived.recipe.keys])
    places = pa.concat_tables([table.cast(keys) for table in tables]) if tables else keys.empty_table()
    return RowChanges(schema.empty_table(), places, pa.array([], pa.binary()))


def letters(tables: Sequence[pa.Table], derived: DerivedShape, stream: TableShape, now_ms: int) -> RowChanges:
    """`tables` have `LETTER_COLUMNS`. Blocking."""
    shape = derived.columns
    found = []
    for table in tables:
        dead = pc.and_(pc.equal(table.column("_kind"), KIND_RAW), table.column("_value").is_valid())
        rows = table.filter(dead)
        if rows.num_rows:
            reasons = [explained(stream, value.as_py()) for value in rows.column("_value")]
            rows = rows.append_column(REASON, pa.array(reasons, pa.string()))
            times = pa.array([now_ms * 1000] * rows.num_rows, pa.timestamp("us", tz="UTC"))
            rows = rows.append_column(DETECTED, times)
            found.append(canonical(rows, shape.names, shape))
    empty = arrow_schema(shape).empty_table()
    rows = pa.concat_tables(found) if found else empty
    return RowChanges(rows, empty.select(list(derived.recipe.keys)), pa.array([], pa.binary()))
