"""Dead letters that were answered: their rows in the stream's table have got columns since."""

import asyncio
from collections.abc import Set as AbstractSet
from functools import partial

import numpy as np

from lakestream.table.deriving.changes import RowChanges
from lakestream.table.deriving.letters import KIND_COLUMNS, answered, only_gone, place_numbers
from lakestream.table.deriving.reading import StreamRows
from lakestream.table.deriving.recipe import DerivedShape
from lakestream.table.view import View


class LetterReader:
    def __init__(self, rows: StreamRows) -> None:
        self._rows = rows

    async def resolved(self, stream: View, letters: View, derived: DerivedShape, new: AbstractSet[str]) -> RowChanges:
        """The letters that go, as far as these files of the stream's table tell: each is in one of them if its row was
        rewritten since all others were looked through."""
        tables = await self._rows.found(letters, letters.files, derived.recipe.keys, lambda rows: rows)
        if not tables or not any(table.num_rows for table in tables):
            return only_gone((), derived)
        wanted = np.concatenate([place_numbers(table) for table in tables])
        lowest: dict[int, int] = {}
        highest: dict[int, int] = {}
        for table in tables:
            partitions = table.column("_stream_partition").to_numpy()
            offsets = table.column("_offset").to_numpy()
            for partition in np.unique(partitions).tolist():
                own = offsets[partitions == partition]
                lowest[partition] = min(int(own.min()), lowest.get(partition, int(own.min())))
                highest[partition] = max(int(own.max()), highest.get(partition, int(own.max())))
        files = [
            file
            for file in stream.files
            if file.path in new
            and any(
                (file.partition_min is None or file.partition_min <= partition)
                and (file.partition_max is None or file.partition_max >= partition)
                and (file.offset_min is None or file.offset_min <= highest[partition])
                and (file.offset_max is None or file.offset_max >= low)
                for partition, low in lowest.items()
            )
        ]
        found = await self._rows.found(stream, files, KIND_COLUMNS, partial(answered, wanted=wanted))
        return await asyncio.to_thread(only_gone, found, derived)
