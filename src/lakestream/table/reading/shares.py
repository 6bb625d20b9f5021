"""What of each file of a view belongs to which partition.

A manifest bounds a file as a whole. That is exact for a file of one partition; of a file that many share it says too
little to judge one of them, so such a file's places are read once, and remembered: files never change.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lakestream.model import DataFile
from lakestream.objects.store import ObjectStore
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletes import Deleted
from lakestream.table.reading.files import UNBOUNDED
from lakestream.table.reading.rows import RowPlaces, RowReader

_KEPT_FILES: Final = 20_000
_CACHE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Share:
    """The records of one partition in one file; offsets are inclusive bounds. `timestamp_max_ms` None: not known, or
    no record has a time. Not `exact`: the bounds are wider than the truth, and nothing is known of the rest."""

    offset_min: int
    offset_max: int
    timestamp_max_ms: int | None
    size_bytes: int
    exact: bool = True


class Shares:
    def __init__(self, store: ObjectStore) -> None:
        self._rows = RowReader(ParquetFiles(store), SharedCache(_CACHE_BYTES))
        self._known: OrderedDict[str, Mapping[int, Share]] = OrderedDict()

    async def learn(self, files: Sequence[DataFile], limit: int) -> None:
        """Reads some of the files of which the manifest says too little, at most `limit`."""
        for file in files:
            if limit <= 0:
                return
            if _plain(file) is None and file.path not in self._known:
                limit -= 1
                self._known[file.path] = await self._read(file)
                if len(self._known) > _KEPT_FILES:
                    self._known.popitem(last=False)

    def of(self, file: DataFile, partitions: int) -> Mapping[int, Share]:
        """By partition, of those below `partitions`."""
        plain = _plain(file)
        if plain is not None:
            return plain
        known = self._known.get(file.path)
        if known is not None:
            self._known.move_to_end(file.path)
            return known
        low, high = file.partition_min or 0, file.partition_max
        share = Share(
            file.offset_min or 0,
            UNBOUNDED if file.offset_max is None else file.offset_max,
            file.timestamp_max_ms,
            0,
            exact=False,
        )
        return dict.fromkeys(range(low, partitions if high is None else min(high + 1, partitions)), share)

    async def _read(self, file: DataFile) -> Mapping[int, Share]:
        found: dict[int, Share] = {}
        nothing = Deleted([])
        for group in await self._rows.groups(file):
            for partition, share in _shares(await self._rows.places(group, nothing, times=True), file).items():
                before = found.get(partition)
                found[partition] = share if before is None else _joined(before, share)
        return found


def _plain(file: DataFile) -> Mapping[int, Share] | None:
    """What the manifest says, if that is enough."""
    if file.partition_min is None or file.partition_min != file.partition_max:
        return None
    if file.offset_min is None or file.offset_max is None or file.timestamp_max_ms is None:
        return None
    share = Share(file.offset_min, file.offset_max, file.timestamp_max_ms, file.size_bytes)
    return {file.partition_min: share}


def _shares(places: RowPlaces, file: DataFile) -> dict[int, Share]:
    found = {}
    for partition in np.unique(places.partition).tolist():
        hit = places.partition == partition
        newest_ms = int(places.timestamp_ms[hit].max())
        found[partition] = Share(
            int(places.offset[hit].min()),
            int(places.offset[hit].max()),
            newest_ms if newest_ms >= 0 else None,
            file.size_bytes * int(hit.sum()) // max(file.record_count, 1),
        )
    return found


def _joined(one: Share, other: Share) -> Share:
    times = [share.timestamp_max_ms for share in (one, other) if share.timestamp_max_ms is not None]
    return Share(
        min(one.offset_min, other.offset_min),
        max(one.offset_max, other.offset_max),
        max(times, default=None),
        one.size_bytes + other.size_bytes,
    )
