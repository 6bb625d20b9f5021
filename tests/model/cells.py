"""The state: a flat tuple of small integers, so that every symmetry is a permutation of positions.

What an actor remembers is kept only if somebody's next step can depend on it. Offsets are positions in a partition's
log; a record is named by the flush that brings it, so there is one record per flush and partition. 0 is "none".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import permutations, product
from operator import itemgetter

State = tuple[int, ...]


class Phase(IntEnum):
    """Where a flush is."""

    IDLE = 0
    STAMPED = 1
    """Its generation is chosen; the object is not there yet."""
    UPLOADED = 2
    OVER = 3


class Status(IntEnum):
    """What a flush knows of one partition. From ACKED on, it is decided for the broker."""

    NONE = 0
    TO_COMMIT = 1
    UNKNOWN = 2
    """No answer; the request is lost or dead, nothing was applied."""
    IN_FLIGHT = 3
    """No answer; the request lands if the head is still the one it was made for."""
    APPLIED = 4
    """No answer; the commit was applied."""
    FENCED = 5
    """Refused: upload again."""
    ACKED = 6
    FAILED = 7
    """The producer heard an error, or the broker is dead."""
    ORPHANED = 8
    """The broker is dead; its request lands if the head is still the one it was made for."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is finite in the model. Generations, retries, crashes and lost messages are not bounded."""

    brokers: int = 2
    flushes: int = 1
    """Per broker."""
    partitions: int = 2
    pipelines: int = 2
    """Table commits that may be under way at once. 0: any number, each taken as one step."""
    objects: int = 2
    """Objects of one flush in the bucket at once: the next upload waits for the collector."""
    orphan_files: int = 1
    """Orphaned table files at once: a pipeline does not crash while there are as many."""


class Shape:
    """Which cell is where, and which permutations of cells are symmetries."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.flushes = range(bounds.brokers * bounds.flushes)
        self.partitions = range(bounds.partitions)
        self.objects = range(bounds.objects)
        self.files = range(bounds.pipelines)
        self.orphans = range(bounds.orphan_files)
        self._names: dict[tuple[object, ...], int] = {}
        self.generation = self._cell("generation")
        self.fence = [self._cell("fence", p) for p in self.partitions]
        self.head_frontier = [self._cell("head.frontier", p) for p in self.partitions]
        self.table_frontier = [self._cell("table.frontier", p) for p in self.partitions]
        self.monotone = len(self._names)
        """None of the cells before this one ever falls."""
        self.phase = [self._cell("phase", f) for f in self.flushes]
        self.stamp = [self._cell("stamp", f) for f in self.flushes]
        """Generation of the upload under way."""
        self.upload = [self._cell("upload", f) for f in self.flushes]
        """Which of the flush's objects the upload under way is."""
        self.object = [[self._cell("object", f, k) for k in self.objects] for f in self.flushes]
        """The object's generation, if it is in the bucket."""
        first_section = len(self._names)
        self.section = [
            [[self._cell("section", f, k, p) for p in self.partitions] for k in self.objects] for f in self.flushes
        ]
        """1: the object holds records of the partition; 2: and a collector found that no extent of it names it."""
        self.sections = slice(first_section, len(self._names))
        self.status = [[self._cell("status", f, p) for p in self.partitions] for f in self.flushes]
        self.place = [[self._cell("place", f, p) for p in self.partitions] for f in self.flushes]
        """The record's offset + 1, once committed."""
        self.extent = [[self._cell("extent", f, p) for p in self.partitions] for f in self.flushes]
        """While the record's extent lives: which of the flush's objects it names, + 1."""
        self.start = [[self._cell("start", i, p) for p in self.partitions] for i in self.files]
        """Of files whose table commit may still be tried: the range per partition; whether a collector condemned it."""
        self.end = [[self._cell("end", i, p) for p in self.partitions] for i in self.files]
        self.condemned = [self._cell("condemned", i) for i in self.files]
        self.orphan = [[self._cell("orphan", i, p) for p in self.partitions] for i in self.orphans]
        """Files that nobody will commit any more: the end of the range per partition."""
        self.gone = bounds.objects
        """Value of `upload` when the object was collected under its flush."""
        self._symmetries = [itemgetter(*order) for order in self._orders()]

    def initial(self) -> State:
        first = [0] * len(self._names)
        first[self.generation] = 1
        for p in self.partitions:
            first[self.fence[p]] = 1
        return tuple(first)

    def broker(self, flush: int) -> int:
        return flush // self.bounds.flushes

    def flushes_of(self, broker: int) -> range:
        return range(broker * self.bounds.flushes, (broker + 1) * self.bounds.flushes)

    def block(self, flush: int) -> list[int]:
        """Every cell of a flush."""
        objects = [*self.object[flush], *(cell for sections in self.section[flush] for cell in sections)]
        own = [self.phase[flush], self.stamp[flush], self.upload[flush]]
        return [*own, *objects, *self.status[flush], *self.place[flush], *self.extent[flush]]

    def next_offset(self, cells: Sequence[int], partition: int) -> int:
        return sum(1 for f in self.flushes if cells[self.place[f][partition]])

    def generations_in_use(self, cells: Sequence[int]) -> list[int]:
        """Those that anything can still be compared with, in order; the last is the present one."""
        used = {cells[self.generation]}
        for f in self.flushes:
            if cells[self.stamp[f]]:
                used.add(cells[self.stamp[f]])
            for cell in self.object[f]:
                if cells[cell]:
                    used.add(cells[cell])
        return sorted(used)

    def canonical(self, cells: list[int]) -> bytes:
        """The least of all symmetric forms. Generations are only ever compared, so each becomes its rank among those
        in use; a fence between two of them refuses what the upper one refuses."""
        used = self.generations_in_use(cells)
        if used[-1] != len(used) or any(cells[cell] not in used for cell in self.fence):
            ranks = {generation: rank for rank, generation in enumerate(used, 1)}
            for p in self.partitions:
                cells[self.fence[p]] = next(ranks[each] for each in used if each >= cells[self.fence[p]])
            cells[self.generation] = len(used)
            for f in self.flushes:
                if cells[self.stamp[f]]:
                    cells[self.stamp[f]] = ranks[cells[self.stamp[f]]]
                for cell in self.object[f]:
                    if cells[cell]:
                        cells[cell] = ranks[cells[cell]]
        return bytes(min([symmetry(cells) for symmetry in self._symmetries]))

    def _cell(self, *name: object) -> int:
        self._names[name] = len(self._names)
        return len(self._names) - 1

    def _orders(self) -> list[list[int]]:
        """Brokers, partitions, pipelines and orphans are alike: each permutation of them is one of all cells."""
        orders = []
        for brokers, partitions, files, orphans in product(
            permutations(range(self.bounds.brokers)),
            permutations(self.partitions),
            permutations(self.files),
            permutations(self.orphans),
        ):
            order = [0] * len(self._names)
            for name, cell in self._names.items():
                order[cell] = self._names[self._renamed(name, brokers, partitions, files, orphans)]
            orders.append(order)
        return orders

    def _renamed(
        self,
        name: tuple[object, ...],
        brokers: Sequence[int],
        partitions: Sequence[int],
        files: Sequence[int],
        orphans: Sequence[int],
    ) -> tuple[object, ...]:
        def flush(index: int) -> int:
            return brokers[self.broker(index)] * self.bounds.flushes + index % self.bounds.flushes

        kind, *rest = name
        at = [int(str(each)) for each in rest]
        match kind:
            case "generation":
                return name
            case "fence" | "head.frontier" | "table.frontier":
                return (kind, partitions[at[0]])
            case "phase" | "stamp" | "upload":
                return (kind, flush(at[0]))
            case "object":
                return (kind, flush(at[0]), at[1])
            case "section":
                return (kind, flush(at[0]), at[1], partitions[at[2]])
            case "status" | "place" | "extent":
                return (kind, flush(at[0]), partitions[at[1]])
            case "start" | "end":
                return (kind, files[at[0]], partitions[at[1]])
            case "condemned":
                return (kind, files[at[0]])
            case "orphan":
                return (kind, orphans[at[0]], partitions[at[1]])
            case _:
                raise AssertionError(kind)
