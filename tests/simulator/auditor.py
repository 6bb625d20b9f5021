"""Holds its own record of what was sent and acknowledged, and compares everything that anybody is told with it.

The invariants are those of docs/ARCHITECTURE.md. A violation ends the history. What is written and deleted is followed
by `simulator.watcher`, which shares this record.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NoReturn
from uuid import UUID

from lakestream.metadata.log.head import Extent
from lakestream.model import StreamPartition
from lakestream.table.view import View
from simulator.batches import Row
from simulator.world import Process, World


class Violation(AssertionError):
    """An invariant does not hold."""


class Auditor:
    def __init__(self, world: World) -> None:
        self._world = world
        self.values: dict[StreamPartition, dict[int, bytes]] = {}
        """What anybody was ever told is at an offset: acknowledgements and reads alike."""
        self.acked: dict[StreamPartition, dict[int, bytes]] = {}
        self._acks: dict[tuple[StreamPartition, str], dict[int, tuple[int, int]]] = {}
        """Of each producer, number of a batch → its first and last offset."""
        self._sent: dict[bytes, tuple[StreamPartition, int, bool]] = {}
        """Value → where it belongs, how often it may be in the log at the most, whether its producer's order counts."""
        self._renumbered: dict[bytes, int] = {}
        """Value → how often it was sent again in a new epoch."""
        self._inserted: set[bytes] = set()
        """Values that an engine's INSERT has as its rows."""
        self.deleted: dict[StreamPartition, dict[int, None]] = {}
        """Offsets that an outside engine deleted, or tried to, and those that folds have taken out."""
        self.retired: dict[StreamPartition, dict[int, None]] = {}
        """Offsets below the log start whose rows left the table: nobody may be led over them."""
        self.gone: dict[UUID, None] = {}
        """Deleted topics: nobody may see anything of them any more."""
        self.holders: dict[str, Process] = {}
        """Name of a lease's holder → the one process that may use the lease."""
        self.stored: Callable[[StreamPartition, int, Sequence[bytes]], None] = lambda *_: None
        """Fails unless what was acknowledged is where it must be."""
        self.forgetful = False
        """Producers' rows expire early, so a batch may land a second time, behind later ones."""
        self.located: Callable[[StreamPartition, Sequence[bytes]], int | None] = lambda *_: None
        """The offset at which these values entered the log; fails if they never did. None: the log is gone."""
        self.violation: Violation | None = None

    def fail(self, message: str) -> NoReturn:
        self._world.trace(f"VIOLATION {message}")
        self.violation = self.violation or Violation(message)
        raise self.violation

    def sending(self, partition: StreamPartition, values: Sequence[bytes], copies: int, *, ordered: bool) -> None:
        for value in values:
            self._sent[value] = (partition, copies, ordered)

    def renumbering(self, values: Sequence[bytes]) -> None:
        """Sent again in a new epoch: the log knows that the old one is closed, and only the log does."""
        for value in values:
            self._renumbered[value] = self._renumbered.get(value, 0) + 1

    def inserting(self, partition: StreamPartition, values: Sequence[bytes]) -> None:
        """An engine has written rows, which become records once or never, however often their commit is sent."""
        self.sending(partition, values, 1, ordered=True)
        self._inserted.update(values)

    def inserted(self, partition: StreamPartition, offsets: Sequence[int | None], values: Sequence[bytes]) -> None:
        """The engine was told that its statement is done: these of its rows entered the log there. Nowhere: the log is
        gone."""
        if not offsets:
            return
        found = [offset for offset in offsets if offset is not None]
        if len(found) < len(values):
            missing = values[offsets.index(None)]
            self.fail(f"I3: an INSERT is answered, and {missing!r} never entered the log of {partition.index}")
        if any(one >= other for one, other in pairwise(found)):
            self.fail(f"I1: rows of an INSERT have lost their order in {partition.index}: {found}")
        for offset, value in zip(found, values, strict=True):
            self.told(partition, offset, value, "an engine")
            self.acked.setdefault(partition, {})[offset] = value
            self.stored(partition, offset, [value])

    def entered_again(self, partition: StreamPartition, row: Row) -> None:
        """A value that is in the log already was appended."""
        if row.value in self._inserted:
            self.fail(f"I1: {row.value!r} was inserted once, and enters {partition.index} again at {row.offset}")

    def told(self, partition: StreamPartition, offset: int, value: bytes, who: str) -> None:
        """Somebody was told that `value` is at `offset`: nobody may ever be told otherwise."""
        known = self.values.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            self.fail(f"I1/I3: {who} sees {value!r} at {partition.index}/{offset} where {known!r} was seen before")
        sent = self._sent.get(value)
        if sent is None or sent[0] != partition:
            self.fail(f"I3: {who} sees {value!r} at {partition.index}/{offset}, which nobody sent there")

    def acknowledged(self, partition: StreamPartition, base: int, values: Sequence[bytes]) -> None:
        """Whatever order acks come in, a producer's batches have the order of their numbers."""
        producer, number, last = _producer(values[0]), _number(values[0]), base + len(values) - 1
        self._world.trace(f"ack {partition.index}/{base} {values[0].decode()} +{len(values) - 1}")
        acks = self._acks.setdefault((partition, producer), {})
        for other, (other_base, other_last) in acks.items():
            if not self.forgetful and ((other_last >= base) if other < number else (other_base <= last)):
                self.fail(
                    f"I1: {producer} is told {partition.index}/{base} for batch {number}, {other_base} for {other}"
                )
        acks[number] = (base, last)
        for offset, value in enumerate(values, base):
            self.told(partition, offset, value, "a producer")
            self.acked.setdefault(partition, {})[offset] = value
        self.stored(partition, base, values)

    def acknowledged_somewhere(self, partition: StreamPartition, values: Sequence[bytes]) -> None:
        """A producer was told that its batch is a duplicate, and took that for success."""
        self._world.trace(f"duplicate {partition.index} {values[0].decode()} +{len(values) - 1}")
        base = self.located(partition, values)
        if base is not None:
            self.acknowledged(partition, base, values)

    def read(
        self,
        partition: StreamPartition,
        position: int,
        rows: Iterable[Row],
        end: int,
        who: str,
        *,
        missing: Container[int] = (),
    ) -> None:
        """A fetch at `position` was answered with these rows and advances the reader to `end`. `missing`: offsets that
        need not be there, beside those that were deleted."""
        expected = position
        for row in rows:
            self._check_gap(partition, expected, row.offset, who, missing)
            self.told(partition, row.offset, row.value, who)
            expected = row.offset + 1
        self._check_gap(partition, expected, end, who, missing)

    def audit_stream(self, partition: StreamPartition, start: int, rows: Sequence[Row], end: int, who: str) -> None:
        """All that a broker serves of a partition from its log start on, in order, after the faults have stopped."""
        self.read(partition, start, rows, end, who)
        found = {row.offset: row.value for row in rows}
        if len(found) != len(rows):
            self.fail(f"I1: {who} serves an offset of partition {partition.index} twice")
        for offset, value in self.acked.get(partition, {}).items():
            if offset >= start and found.get(offset) != value and offset not in self.deleted.get(partition, {}):
                self.fail(
                    f"I3: {value!r} was acknowledged at {partition.index}/{offset}; {who} has {found.get(offset)!r}"
                )
        self._count(row.value for row in rows)
        self._check_order(rows)

    def audit_table(self, topic: UUID, rows: Iterable[Row], view: View) -> None:
        """I5: the rows of a table are the records of the stream below its frontier, exactly once."""
        by_partition: list[list[Row]] = [[] for _ in view.frontier]
        for row in rows:
            by_partition[row.partition].append(row)
        for index, mine in enumerate(by_partition):
            mine.sort()
            frontier = view.frontier[index]
            if any(one.offset == other.offset for one, other in pairwise(mine)):
                self.fail(f"I5: the table has an offset of partition {index} twice")
            if mine and mine[-1].offset >= frontier:
                self.fail(f"I5: the table has {index}/{mine[-1].offset}, beyond its frontier {frontier}")
            partition = StreamPartition(topic, index)
            self.read(partition, 0, mine, frontier, "the table", missing=self.retired.get(partition, {}))

    def audit_rebuilt(
        self,
        partition: StreamPartition,
        frontier: int,
        acked: Mapping[int, bytes],
        rows: Iterable[Row],
        appended: int,
        left_out: int,
    ) -> None:
        """I3, of a log that was rebuilt beside its table, with the rows of both: every record is there, at its offset.
        Only those that no receipt tells of may have moved: behind the end, or, where producers' rows expire and a
        retry can land a second time, to their first attempt."""
        rows = list(rows)
        found = {row.offset: row.value for row in rows if row.offset >= frontier}
        values = {row.value for row in rows} if self.forgetful else set(found.values())
        lost = [value for offset, value in acked.items() if offset >= frontier and value not in values]
        if lost:
            self.fail(f"I3: {lost[0]!r} is acknowledged, and not in the rebuilt log of partition {partition.index}")
        moved_most = appended + (left_out if self.forgetful else 0)
        moved = sum(offset >= frontier and found.get(offset) != value for offset, value in acked.items())
        if moved > moved_most:
            self.fail(f"I3: {moved} records of partition {partition.index} have moved, {moved_most} without receipt")

    def placed_again(self, partition: StreamPartition, frontier: int, extent: Extent, entered_at: int) -> None:
        """I1, of such a log: what the table has taken is known to be taken for as long as its object is there, whenever
        rows were saved."""
        if not self.forgetful and entered_at < frontier <= extent.base_offset:
            self.fail(
                f"I1: {extent.object_key} is in the table, at {partition.index}/{entered_at}, and at"
                f" {extent.base_offset} of the rebuilt log again"
            )

    def count_rebuilt(self, rows: Iterable[Row]) -> None:
        """I1, of such a log and its table: what no receipt tells of may be there once more for each epoch that it was
        sent in."""
        if not self.forgetful:
            self._count((row.value for row in rows), self._renumbered)

    def _check_gap(self, partition: StreamPartition, start: int, end: int, who: str, missing: Container[int]) -> None:
        deleted = self.deleted.get(partition, {})
        for offset in range(start, end):
            if offset not in deleted and offset not in missing:
                self.fail(f"I2/I4: {who} skips {partition.index}/{offset}")

    def _count(self, values: Iterable[bytes], more: Mapping[bytes, int] = MappingProxyType({})) -> None:
        counts: dict[bytes, int] = {}
        for value in values:
            counts[value] = counts.get(value, 0) + 1
        for value, count in counts.items():
            possible = self._sent[value][1] + more.get(value, 0)
            if count > possible:
                self.fail(f"I1: {value!r} is in the log {count} times; {possible} were possible")

    def _check_order(self, rows: Iterable[Row]) -> None:
        """I8: what an idempotent producer gave up is fenced by what it sent in its next epoch."""
        last: dict[str, int] = {}
        for row in rows:
            producer, number = _producer(row.value), _number(row.value)
            if self._sent[row.value][2]:
                if number < last.get(producer, 0):
                    self.fail(f"I8: {row.value!r} at {row.partition}/{row.offset} comes after a later batch")
                last[producer] = number


def _producer(value: bytes) -> str:
    return value.split(b".")[0].decode()


def _number(value: bytes) -> int:
    return int(value.split(b".")[2])
