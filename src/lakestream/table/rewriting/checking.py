"""Whether the rows of files that an engine wrote are still the records that producers sent: each held against its
`_crc`, as a fetch would, before the files become a part of the table."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.errors import CorruptObject
from lakestream.model import DataFile
from lakestream.objects.store import ObjectStore
from lakestream.records import Columns
from lakestream.table.parquet.arrow import from_arrow
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.rows import RowReader, sorted_encoder
from lakestream.table.shape import TableShape

CHECKED_BYTES: Final = 2 * 1024 * 1024 * 1024
"""Of one commit, decoded: some ten seconds. Of a commit with more, row groups from all over it are checked."""
_SAMPLED_FILES: Final = 256
_ENCODED_BYTES: Final = 1024 * 1024
_REMEMBERED: Final = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Checked:
    """How many of the files' row groups were looked at. `group_count` counts those of the files that were opened."""

    group_count: int
    checked_count: int
    is_whole: bool


class RowChecker:
    """Files never change under their name, so what was checked as a whole is remembered: a commit that is tried again
    because somebody else's came first costs nothing."""

    def __init__(self, store: ObjectStore, *, max_bytes: int = CHECKED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rows = RowReader(ParquetFiles(store), SharedCache(0))
        self._sound: OrderedDict[str, None] = OrderedDict()

    async def check(self, files: Sequence[DataFile], shape: TableShape) -> Checked:
        """`CorruptObject`, which names partition and offset, for a record that is not what its producer sent, or that
        stands twice; `ObjectMissing` for a file that is not there."""
        unknown = [file for file in files if file.path not in self._sound]
        opened = _spread(unknown, _SAMPLED_FILES)
        groups = [group for found in await self._rows.groups_of(opened) for group in found]
        size_bytes = sum(group.row_group.size_bytes for group in groups)
        is_whole = len(opened) == len(unknown) and size_bytes <= self._max_bytes
        chosen = groups if is_whole else _spread(groups, max(1, len(groups) * self._max_bytes // max(size_bytes, 1)))
        for group in chosen:
            trouble = await self._rows.read(group, lambda table: _trouble(table, shape), shape, pieces=True)
            if trouble:
                raise CorruptObject(f"{trouble}; it is in {group.row_group.path}")
        if is_whole:
            self._remember(unknown)
        return Checked(len(groups), len(chosen), is_whole)

    def _remember(self, files: Sequence[DataFile]) -> None:
        self._sound.update(dict.fromkeys(file.path for file in files))
        while len(self._sound) > _REMEMBERED:
            self._sound.popitem(last=False)


def _spread(items: Sequence[T], count: int) -> Sequence[T]:
    """So many of them at most, from all over."""
    if len(items) <= count:
        return items
    return [items[place] for place in np.linspace(0, len(items) - 1, count).astype(int).tolist()]


def _trouble(table: pa.Table, shape: TableShape) -> str:
    """What is wrong with the first row that no fetch could serve; empty: nothing. Runs in a thread."""
    for piece in table.to_batches():
        columns = from_arrow(pa.Table.from_batches([piece]), shape)
        for partition in np.unique(columns.partition).tolist():
            trouble = _trouble_in(columns, np.flatnonzero(columns.partition == partition))
            if trouble:
                return f"partition {partition}: {trouble}"
    return ""


def _trouble_in(columns: Columns, rows: npt.NDArray[np.int64]) -> str:
    try:
        encoder = sorted_encoder(columns, rows)
        at = 0
        while at < len(rows):
            _, at = encoder.encode(at, len(rows), max_bytes=_ENCODED_BYTES)
    except CorruptObject as error:
        return str(error)
    return ""
