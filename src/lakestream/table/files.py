"""Which files of a view may hold an offset, or a time, of a partition."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lakestream.model import DataFile
from lakestream.objects.store import ObjectStore

UNBOUNDED: Final = np.iinfo(np.int64).max


def same_form(path: str) -> str:
    """One spelling per file: engines write `file:/x` and `file:///x` alike."""
    if path.startswith("file:"):
        return "file:///" + path.removeprefix("file:").lstrip("/")
    return path


def key_in(store: ObjectStore, path: str) -> str | None:
    """The key of the file in the store; None if it lies elsewhere."""
    prefix = same_form(store.url) + "/"
    path = same_form(path)
    return path.removeprefix(prefix) if path.startswith(prefix) else None


class FileIndex:
    """The files of one view by their bounds. A bound that the manifest lacks is one that may match."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self._files = files
        self._partition_min = _array([file.partition_min for file in files], 0)
        self._partition_max = _array([file.partition_max for file in files], UNBOUNDED)
        self._offset_min = _array([file.offset_min for file in files], 0)
        self._offset_max = _array([file.offset_max for file in files], UNBOUNDED)
        self._timestamp_max = _array([file.timestamp_max_ms for file in files], UNBOUNDED)
        self._order: dict[int, npt.NDArray[np.int64]] = {}

    def overlapping(self, partition: int, low: int, high: int) -> list[DataFile]:
        """Those that may hold an offset in [low, high], lowest first."""
        order = self._of_partition(partition)
        hit = (self._offset_min[order] <= high) & (self._offset_max[order] >= low)
        return [self._files[index] for index in order[hit].tolist()]

    def next_start(self, partition: int, offset: int) -> int:
        """The lowest lower bound above the offset; UNBOUNDED if there is none."""
        starts = self._offset_min[self._of_partition(partition)]
        after = int(np.searchsorted(starts, offset, side="right"))
        return int(starts[after]) if after < len(starts) else UNBOUNDED

    def newest_first(self, partition: int, end_offset: int) -> list[tuple[DataFile, int]]:
        """Those below end_offset with the bound of their timestamps, the newest first."""
        order = self._of_partition(partition)
        order = order[self._offset_min[order] < end_offset]
        order = order[np.argsort(-self._timestamp_max[order], kind="stable")]
        return [(self._files[index], int(self._timestamp_max[index])) for index in order.tolist()]

    def _of_partition(self, partition: int) -> npt.NDArray[np.int64]:
        """Files of the partition by lower bound."""
        order = self._order.get(partition)
        if order is None:
            hit = np.flatnonzero((self._partition_min <= partition) & (self._partition_max >= partition))
            order = hit[np.argsort(self._offset_min[hit], kind="stable")]
            self._order[partition] = order
        return order


def _array(values: list[int | None], missing: int) -> npt.NDArray[Any]:
    return np.array([missing if value is None else value for value in values], np.int64)
