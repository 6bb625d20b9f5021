"""Rows that leave a table by a rule of its topic's: which may, and that they stay away."""

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from lakestream.model import StreamPartition
from simulator.auditor import Auditor
from simulator.batches import Row
from simulator.policies import Policy, is_tombstone, key_of


class Leaving:
    def __init__(self, auditor: Auditor, policy: Policy) -> None:
        self._auditor = auditor
        self._policy = policy
        self._newest: dict[tuple[UUID, int, bytes], Row] = {}
        """Of each key, among all rows that any table of the topic ever had."""
        self._left: set[tuple[UUID, int, int]] = set()

    def judge(
        self, topic: UUID, before: Sequence[Row], now: Sequence[Row], log_start: Callable[[StreamPartition], int]
    ) -> None:
        """Enters what has left by a rule. What left without one is for the audit of the table to find."""
        for row in now:
            if (topic, row.partition, row.offset) in self._left:
                self._auditor.fail(f"I5: {row.partition}/{row.offset} had left the table and is back")
        if self._policy.folds:
            self._judge_keys(topic, now)
        there = set(now)
        for row in before:
            partition = StreamPartition(topic, row.partition)
            if row in there or row.offset in self._auditor.deleted.get(partition, {}):
                continue
            if self._policy.folds:
                self._enter(partition, row, self._auditor.deleted)
            elif self._policy.drops:
                if row.offset >= log_start(partition):
                    self._auditor.fail(
                        f"I3: {row.partition}/{row.offset} left the table, and the stream begins at"
                        f" {log_start(partition)}"
                    )
                self._enter(partition, row, self._auditor.retired)

    def _judge_keys(self, topic: UUID, now: Iterable[Row]) -> None:
        """The newest record of a key stays, unless an engine deletes it. A tombstone may go when nothing is left that
        it hides."""
        held: dict[tuple[UUID, int, bytes], list[int]] = {}
        for row in now:
            key = (topic, row.partition, key_of(row.value))
            held.setdefault(key, []).append(row.offset)
            if key not in self._newest or self._newest[key].offset < row.offset:
                self._newest[key] = row
        for key, row in self._newest.items():
            if key[0] != topic or row.offset in held.get(key, ()):
                continue
            if row.offset in self._auditor.deleted.get(StreamPartition(topic, row.partition), {}):
                continue
            if not is_tombstone(row.value):
                self._auditor.fail(f"I5: {row.partition}/{row.offset}, the newest of its key, left the table")
            if key in held:
                self._auditor.fail(
                    f"I5: the tombstone at {row.partition}/{row.offset} left the table before {held[key]}, which it hid"
                )

    def judge_marks(self, marked: Sequence[Row], dirty: Iterable[Row]) -> None:
        """Below everything that was not folded yet, each key stands once: tombstones go on the strength of that."""
        clean_below: dict[int, int] = {}
        for row in dirty:
            clean_below[row.partition] = min(row.offset, clean_below.get(row.partition, row.offset))
        found: dict[tuple[int, bytes], Row] = {}
        for row in marked:
            if row.offset < clean_below.get(row.partition, row.offset + 1):
                other = found.setdefault((row.partition, key_of(row.value)), row)
                if other is not row:
                    self._auditor.fail(
                        f"I5: {row.partition}/{row.offset} and {other.offset} count as folded, and have one key"
                    )

    def _enter(self, partition: StreamPartition, row: Row, where: dict[StreamPartition, dict[int, None]]) -> None:
        where.setdefault(partition, {})[row.offset] = None
        self._left.add((partition.topic_id, row.partition, row.offset))
