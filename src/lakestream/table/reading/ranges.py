"""Offsets as half-open ranges per partition: what to read, cut at the frontier, and which rows are in it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Ranges:
    """Per partition [start, end), none of them empty."""

    by_partition: Mapping[int, tuple[int, int]]

    @staticmethod
    def between(starts: Mapping[int, int], ends: Mapping[int, int]) -> "Ranges":
        """Of the partitions that both know and where something lies between."""
        return Ranges(
            {
                partition: (start, ends[partition])
                for partition, start in sorted(starts.items())
                if start < ends.get(partition, 0)
            }
        )

    def __bool__(self) -> bool:
        return bool(self.by_partition)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        for partition, (start, end) in self.by_partition.items():
            yield partition, start, end

    @property
    def offset_count(self) -> int:
        return sum(end - start for _, start, end in self)

    def cut(self, frontier: Sequence[int]) -> tuple["Ranges", "Ranges"]:
        """Below and from the frontier on. A partition that the frontier does not know has nothing below."""
        at = {partition: frontier[partition] if partition < len(frontier) else 0 for partition in self.by_partition}
        starts = {partition: start for partition, start, _ in self}
        ends = {partition: end for partition, _, end in self}
        below = Ranges.between(starts, {partition: min(end, at[partition]) for partition, end in ends.items()})
        above = Ranges.between({partition: max(start, at[partition]) for partition, start in starts.items()}, ends)
        return below, above

    def may_hold(self, partitions: tuple[int, int], offsets: tuple[int, int]) -> bool:
        """Whether rows within these inclusive bounds can be in the ranges."""
        return any(
            partitions[0] <= partition <= partitions[1] and offsets[0] < end and offsets[1] >= start
            for partition, start, end in self
        )

    def holds(self, partition: npt.NDArray[Any], offset: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Row by row."""
        count = max(self.by_partition, default=-1) + 2
        starts, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for known, start, end in self:
            starts[known], ends[known] = start, end
        place = np.minimum(partition, count - 1)
        held: npt.NDArray[np.bool_] = (offset >= starts[place]) & (offset < ends[place])
        return held

    def split(self, most_offsets: int) -> list["Ranges"]:
        """In parts of at most so many offsets: long ranges are cut, short ones share a part."""
        parts: list[dict[int, tuple[int, int]]] = []
        room = 0
        for partition, start, end in self:
            while start < end:
                if room == 0:
                    parts.append({})
                    room = most_offsets
                taken = min(room, end - start)
                parts[-1][partition] = (start, start + taken)
                start += taken
                room -= taken
        return [Ranges(part) for part in parts]
