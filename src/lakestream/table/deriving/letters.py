"""Dead letters: rows of a typed stream whose value could not be decoded, with the reason."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakestream.table.deriving.changes import RowChanges
from lakestream.table.deriving.recipe import DETECTED, REASON, DerivedShape
from lakestream.table.parquet.arrow import arrow_schema, canonical
from lakestream.table.parquet.codec import explained
from lakestream.table.shape import KIND_RAW, TableShape

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
