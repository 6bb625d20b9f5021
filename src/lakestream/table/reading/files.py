"""Which files of a view may hold an offset, or a time, of a partition.

A `FilePart` is made once for each manifest and shared by all views that name it; a `FileIndex` is a view's parts, put
together without looking at their files. A lookup searches the parts' spans, then the parts it found: it costs the
logarithm of the files, and what it finds.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, count, pairwise
from operator import itemgetter
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

from lakestream.model import DataFile
from lakestream.objects.paths import relative
from lakestream.objects.store import ObjectStore

UNBOUNDED: Final = int(np.iinfo(np.int64).max)
_Longs = npt.NDArray[np.int64]


def key_in(store: ObjectStore, path: str) -> str | None:
    """The key of the file in the store; None if it lies elsewhere."""
    return relative(path, store.url)


class _Files(Sequence[DataFile]):
    """Equal to any sequence of the same files."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self is other or (len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True)))

    def __hash__(self) -> int:
        return hash(tuple(self))


class FilePart(_Files):
    """The files of one manifest. A bound that the manifest lacks is one that may match."""

    def __init__(self, files: Iterable[DataFile]) -> None:
        self._files = tuple(files)
        lows = _array([file.partition_min for file in self._files], 0)
        highs = _array([file.partition_max for file in self._files], UNBOUNDED)
        self._starts = _array([file.offset_min for file in self._files], 0)
        ends = _array([file.offset_max for file in self._files], UNBOUNDED)
        self._times = _array([file.timestamp_max_ms for file in self._files], UNBOUNDED)
        narrow, wide = np.flatnonzero(lows == highs), np.flatnonzero(lows != highs)
        order = narrow[np.lexsort((self._starts[narrow], lows[narrow]))]
        cuts = [0, *(np.flatnonzero(np.diff(lows[order])) + 1).tolist(), len(order)] if len(order) else []
        self._runs = {
            int(lows[order[start]]): _Run(order[start:stop], self._starts, ends) for start, stop in pairwise(cuts)
        }
        self._narrow_spans = {partition: run.span for partition, run in self._runs.items()}
        wide = wide[np.argsort(self._starts[wide], kind="stable")]
        self._wide = _Run(wide, self._starts, ends) if len(wide) else None
        self._wide_lows, self._wide_highs = lows[wide], highs[wide]
        self._wide_partitions = (int(lows[wide].min()), int(highs[wide].max())) if len(wide) else (0, -1)
        self.timestamp_max_ms: Final = int(self._times.max()) if len(self._files) else -1

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[DataFile]:
        return iter(self._files)

    @overload
    def __getitem__(self, index: int) -> DataFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[DataFile]: ...
    def __getitem__(self, index: int | slice) -> DataFile | Sequence[DataFile]:
        return self._files[index]

    def span(self, partition: int) -> tuple[int, int] | None:
        """The lowest and the highest offset of the partition that a file may hold; None: none can hold any."""
        narrow = self._narrow_spans.get(partition)
        if self._wide is None or not self._wide_partitions[0] <= partition <= self._wide_partitions[1]:
            return narrow
        wide = self._wide.span
        return wide if narrow is None else (min(narrow[0], wide[0]), max(narrow[1], wide[1]))

    def overlapping(self, partition: int, low: int, high: int, since_ms: int) -> list[DataFile]:
        """Those that may hold an offset in [low, high] and a record that is not older, lowest first."""
        found = self._places(partition, low, high)
        if since_ms > 0:
            found = [place for place in found if self._times[place] >= since_ms]
        return [self._files[place] for place in found]

    def next_start(self, partition: int, offset: int) -> int:
        """The lowest lower bound above the offset; UNBOUNDED if there is none."""
        run = self._runs.get(partition)
        lowest = run.next_start(offset) if run is not None else UNBOUNDED
        if self._wide is not None:
            after = slice(int(self._wide.starts.searchsorted(offset, "right")), None)
            holds = (self._wide_lows[after] <= partition) & (self._wide_highs[after] >= partition)
            if holds.any():
                lowest = min(lowest, int(self._wide.starts[after][holds.argmax()]))
        return lowest

    def timed(self, partition: int, end_offset: int) -> list[tuple[int, DataFile]]:
        """Those that may hold an offset below, each with the bound of its timestamps."""
        return [(int(self._times[place]), self._files[place]) for place in self._places(partition, 0, end_offset - 1)]

    def _places(self, partition: int, low: int, high: int) -> list[int]:
        run = self._runs.get(partition)
        found = run.overlapping(low, high).tolist() if run is not None else []
        if self._wide is None:
            return found
        within = self._wide.within(low, high)
        holds = (self._wide_lows[within] <= partition) & (self._wide_highs[within] >= partition)
        wide: list[int] = self._wide.places[within][holds & (self._wide.ends[within] >= low)].tolist()
        return sorted(found + wide, key=lambda place: int(self._starts[place])) if found and wide else found or wide


class _Run:
    """Files by their lower bound. `reach` is the highest upper bound so far, which never falls: what may hold an offset
    begins where it first gets there."""

    __slots__ = ("ends", "places", "reach", "span", "starts")

    def __init__(self, places: npt.NDArray[np.intp], starts: _Longs, ends: _Longs) -> None:
        self.places = places.astype(np.int32)
        self.starts, self.ends = starts[places], ends[places]
        self.reach = np.maximum.accumulate(self.ends)
        self.span = int(self.starts[0]), int(self.reach[-1])

    def within(self, low: int, high: int) -> slice:
        """Where all are that overlap [low, high], and few others."""
        return slice(int(self.reach.searchsorted(low)), int(self.starts.searchsorted(high, "right")))

    def overlapping(self, low: int, high: int) -> npt.NDArray[np.int32]:
        within = self.within(low, high)
        found: npt.NDArray[np.int32] = self.places[within][self.ends[within] >= low]
        return found

    def next_start(self, offset: int) -> int:
        after = int(self.starts.searchsorted(offset, "right"))
        return int(self.starts[after]) if after < len(self.starts) else UNBOUNDED


@dataclass(frozen=True, slots=True)
class _Spans:
    """The parts that may hold a partition, by the lowest offset of it; `reach` as in a run."""

    starts: list[int]
    ends: list[int]
    reach: list[int]
    parts: list[FilePart]


class FileIndex(_Files):
    """The files of one view. Immutable."""

    def __init__(self, parts: Iterable[FilePart]) -> None:
        self._parts = tuple(part for part in parts if len(part))
        self._sizes = list(accumulate(map(len, self._parts)))
        self._spans: dict[int, _Spans] = {}

    def __len__(self) -> int:
        return self._sizes[-1] if self._sizes else 0

    def __iter__(self) -> Iterator[DataFile]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, index: int) -> DataFile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[DataFile]: ...
    def __getitem__(self, index: int | slice) -> DataFile | Sequence[DataFile]:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = range(len(self))[index]
        number = bisect_right(self._sizes, place)
        return self._parts[number][place - (self._sizes[number - 1] if number else 0)]

    def overlapping(self, partition: int, low: int, high: int, *, since_ms: int = 0) -> list[DataFile]:
        """Those that may hold an offset in [low, high] of a record that is not older, lowest first."""
        parts = [part for part in self._near(partition, low, high) if part.timestamp_max_ms >= since_ms]
        found = [file for part in parts for file in part.overlapping(partition, low, high, since_ms)]
        if len(parts) > 1:
            found.sort(key=lambda file: file.offset_min or 0)
        return found

    def next_start(self, partition: int, offset: int) -> int:
        """The lowest lower bound above the offset; UNBOUNDED if there is none."""
        near = (part.next_start(partition, offset) for part in self._near(partition, offset + 1, offset))
        lowest = min(near, default=UNBOUNDED)
        spans = self._of_partition(partition)
        for place in range(bisect_right(spans.starts, offset), len(spans.starts)):
            if spans.starts[place] >= lowest:
                break
            lowest = min(lowest, spans.parts[place].next_start(partition, offset))
        return lowest

    def newest_first(self, partition: int, end_offset: int) -> Iterator[tuple[DataFile, int]]:
        """Those below end_offset with the bound of their timestamps, the newest first; a part is looked into when its
        newest file may be the next."""
        number = count()
        waiting: list[tuple[int, int, FilePart | DataFile]] = [
            (-part.timestamp_max_ms, next(number), part) for part in self._near(partition, 0, end_offset - 1)
        ]
        heapq.heapify(waiting)
        while waiting:
            before_ms, _, found = heapq.heappop(waiting)
            if isinstance(found, FilePart):
                for bound_ms, file in found.timed(partition, end_offset):
                    heapq.heappush(waiting, (-bound_ms, next(number), file))
            else:
                yield found, -before_ms

    def _near(self, partition: int, low: int, high: int) -> Iterator[FilePart]:
        """The parts whose span of the partition overlaps [low, high]."""
        spans = self._of_partition(partition)
        first, last = bisect_left(spans.reach, low), bisect_right(spans.starts, high)
        return (spans.parts[place] for place in range(first, last) if spans.ends[place] >= low)

    def _of_partition(self, partition: int) -> _Spans:
        spans = self._spans.get(partition)
        if spans is None:
            found = [(span, part) for part in self._parts if (span := part.span(partition)) is not None]
            found.sort(key=itemgetter(0))
            starts, ends = [span[0] for span, _ in found], [span[1] for span, _ in found]
            spans = _Spans(starts, ends, list(accumulate(ends, max)), [part for _, part in found])
            self._spans[partition] = spans
        return spans


def index_of(files: Sequence[DataFile]) -> FileIndex:
    """A view's files as they are, or an index of any others."""
    return files if isinstance(files, FileIndex) else FileIndex([FilePart(files)])


def _array(values: list[int | None], missing: int) -> npt.NDArray[Any]:
    return np.array([missing if value is None else value for value in values], np.int64)
