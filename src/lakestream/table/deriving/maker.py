"""What a step of a stream's rows makes of a derived table, whatever kind it is of."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakestream.runtime import Clock
from lakestream.table.deriving.changes import RowChanges, changes, source_columns
from lakestream.table.deriving.letters import LETTER_COLUMNS, letters
from lakestream.table.deriving.recipe import DerivedShape
from lakestream.table.shape import TableShape


@dataclass(frozen=True, slots=True)
class Made:
    """Of so many records."""

    records: int
    changes: RowChanges


class Maker:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def columns(self, derived: DerivedShape, stream: TableShape) -> tuple[str, ...]:
        """What is to be read of the stream's rows."""
        return source_columns(derived, stream) if derived.recipe.kind == "latest" else LETTER_COLUMNS

    async def make(self, tables: Sequence[pa.Table], derived: DerivedShape, stream: TableShape) -> Made:
        records = sum(table.num_rows for table in tables)
        if derived.recipe.kind == "latest":
            return Made(records, await asyncio.to_thread(changes, tables, derived, stream))
        return Made(records, await asyncio.to_thread(letters, tables, derived, stream, self._clock.now_ms()))
