"""Holds its own record of what was acknowledged and compares everything it can see with it.

The invariants are those of docs/ARCHITECTURE.md. A violation ends the history.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from uuid import UUID

from lakestream.catalog.port import View
from lakestream.metadata import codec
from lakestream.metadata.groups import CommittedOffset, GroupState
from lakestream.metadata.head import EXTENTS, HEAD, Extent, Head, partition_of
from lakestream.metadata.pointers import Pointer
from lakestream.metadata.store import Address, Applied, Transaction
from lakestream.model import StreamPartition
from lakestream.wal import WAL_PREFIX
from simulator.backends import SimulatedObjects, SimulatedStore
from simulator.batches import Row
from simulator.world import World, run_now


class Violation(AssertionError):
    """An invariant does not hold."""


class Auditor:
    def __init__(
        self, world: World, store: SimulatedStore, objects: SimulatedObjects, tables: Mapping[str, View]
    ) -> None:
        self._world = world
        self._store = store
        self._objects = objects
        self._tables = tables
        self._heads: dict[str, Head] = {}
        self._frontiers: dict[str, tuple[int, ...]] = {}
        self._pointers: dict[str, str] = {}
        self._groups: dict[Address, int] = {}
        self._extents: dict[str, dict[str, str]] = {}
        """Per log shard: extent key → object. What the store holds, followed write by write."""
        self.values: dict[StreamPartition, dict[int, bytes]] = {}
        """What anybody was ever told is at an offset: acknowledgements and reads alike."""
        self.acked: dict[StreamPartition, dict[int, bytes]] = {}
        self.sent: dict[bytes, int] = {}
        """Value → how often a copy of it may be in the log at the most."""
        self.deleted: dict[StreamPartition, dict[int, None]] = {}
        """Offsets that an outside engine deleted, or tried to."""
        self.gone: dict[UUID, None] = {}
        """Deleted topics: nobody may see anything of them any more."""
        self.violation: Violation | None = None
        self._watch_store()
        self._watch_bucket()

    def fail(self, message: str) -> None:
        self._world.trace(f"VIOLATION {message}")
        self.violation = self.violation or Violation(message)
        raise self.violation

    def told(self, partition: StreamPartition, offset: int, value: bytes, who: str) -> None:
        """Somebody was told that `value` is at `offset`: nobody may ever be told otherwise."""
        known = self.values.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            self.fail(f"I1/I3: {who} sees {value!r} at {partition.index}/{offset} where {known!r} was seen before")
        if value not in self.sent:
            self.fail(f"I3: {who} sees {value!r} at {partition.index}/{offset}, which nobody sent")

    def acknowledged(self, partition: StreamPartition, offset: int, value: bytes) -> None:
        self._world.trace(f"ack {partition.index}/{offset} {value.decode()}")
        self.told(partition, offset, value, "a producer")
        self.acked.setdefault(partition, {})[offset] = value

    def read(self, partition: StreamPartition, position: int, rows: Iterable[Row], end: int, who: str) -> None:
        """A fetch at `position` was answered with these rows and advances the reader to `end`."""
        expected = position
        for row in rows:
            if row.offset < position:
                continue
            self._check_gap(partition, expected, row.offset, who)
            self.told(partition, row.offset, row.value, who)
            expected = row.offset + 1
        self._check_gap(partition, expected, end, who)

    def audit_stream(self, partition: StreamPartition, rows: list[Row], end: int, who: str) -> None:
        """Everything that a broker serves of a partition, in order, after the faults have stopped."""
        self.read(partition, 0, rows, end, who)
        found = {row.offset: row.value for row in rows}
        if len(found) != len(rows):
            self.fail(f"I1: {who} serves an offset of partition {partition.index} twice")
        for offset, value in self.acked.get(partition, {}).items():
            if found.get(offset) != value and offset not in self.deleted.get(partition, {}):
                self.fail(
                    f"I3: {value!r} was acknowledged at {partition.index}/{offset}; {who} has {found.get(offset)!r}"
                )
        self._count(row.value for row in rows)

    def audit_table(self, topic: UUID, rows: list[Row], view: View) -> None:
        """I5: the rows of the table are the records of the stream below its frontier, exactly once."""
        for index, frontier in enumerate(view.frontier):
            partition = StreamPartition(topic, index)
            mine = sorted(row for row in rows if row.partition == index)
            offsets = [row.offset for row in mine]
            if len(set(offsets)) != len(offsets):
                self.fail(f"I5: the table has an offset of partition {index} twice")
            self.read(partition, 0, mine, frontier, "the table")
            if offsets and offsets[-1] >= frontier:
                self.fail(f"I5: the table has offset {offsets[-1]} of partition {index} beyond its frontier {frontier}")

    def pointer(self, table: UUID) -> str:
        return self._pointers[f"table/{table.hex}"]

    def live_objects(self) -> set[str]:
        return {key for extents in self._extents.values() for key in extents.values()}

    def _check_gap(self, partition: StreamPartition, start: int, end: int, who: str) -> None:
        deleted = self.deleted.get(partition, {})
        for offset in range(start, end):
            if offset not in deleted:
                self.fail(f"I2/I4: {who} skips {partition.index}/{offset}")

    def _count(self, values: Iterable[bytes]) -> None:
        counts: dict[bytes, int] = {}
        for value in values:
            counts[value] = counts.get(value, 0) + 1
        for value, count in counts.items():
            if count > self.sent[value]:
                self.fail(f"I1: {value!r} is in the log {count} times; {self.sent[value]} were possible")

    def _watch_store(self) -> None:
        apply = self._store.core._apply

        def watched(transaction: Transaction) -> object:
            outcome = apply(transaction)
            if isinstance(outcome, Applied):
                self._changed(transaction)
            return outcome

        self._store.core._apply = watched  # type: ignore[method-assign, assignment]

    def _changed(self, transaction: Transaction) -> None:
        shard = transaction.shard
        if shard.startswith("log/"):
            self._head_changed(transaction)
        elif shard.startswith("group/"):
            self._group_changed(transaction)
        elif shard.startswith("table/") and "pointer" in transaction.puts:
            location = codec.decode(transaction.puts["pointer"], Pointer, Address(shard, "pointer")).metadata_location
            frontier = self._tables[location].frontier
            before = self._frontiers.get(shard, ())
            if len(frontier) < len(before) or any(new < old for new, old in zip(frontier, before, strict=False)):
                self.fail(f"I6: a table's frontier fell from {before} to {frontier}")
            self._frontiers[shard] = frontier
            self._pointers[shard] = location
            self._world.trace(f"table {shard[6:10]} now has {frontier}")

    def _group_changed(self, transaction: Transaction) -> None:
        """I9: nobody in the simulation ever seeks back, so no committed offset may fall, and no generation return."""
        for key, value in transaction.puts.items():
            address = Address(transaction.shard, key)
            if key.startswith("o/"):
                number = codec.decode(value, CommittedOffset, address).offset
            elif key == "state":
                number = codec.decode(value, GroupState, address).generation
            else:
                continue
            if number < self._groups.get(address, 0):
                self.fail(f"I9: {key} of {transaction.shard} fell from {self._groups[address]} to {number}")
            self._groups[address] = number

    def _head_changed(self, transaction: Transaction) -> None:
        shard = transaction.shard
        entries = run_now(self._store.core.range(shard, *EXTENTS))
        [entry] = run_now(self._store.core.get([Address(shard, HEAD)]))
        if entry is None:
            self._heads.pop(shard, None)
            self._extents.pop(shard, None)
            return
        head = codec.decode(entry.value, Head, Address(shard, HEAD))
        before = self._heads.get(shard, Head())
        for name in ("next_offset", "log_start", "frontier", "fence"):
            if getattr(head, name) < getattr(before, name):
                self.fail(f"I6: {name} of {shard[-8:]} fell from {getattr(before, name)} to {getattr(head, name)}")
        self._heads[shard] = head
        extents = [codec.decode(each.value, Extent, Address(shard, each.key)) for each in entries]
        self._check_tail(shard, head, extents)
        self._extents[shard] = {each.key: extent.object_key for each, extent in zip(entries, extents, strict=True)}
        for extent in extents:
            if extent.object_key not in self._objects.objects:
                self.fail(f"I4: the log names {extent.object_key}, which is not in the bucket")

    def _check_tail(self, shard: str, head: Head, extents: list[Extent]) -> None:
        """I4: what is not in an extent is in the table."""
        partition = partition_of(shard)
        frontiers = self._frontiers.get(f"table/{partition.topic_id.hex}", ())
        frontier = frontiers[partition.index] if partition.index < len(frontiers) else 0
        covered = extents[0].base_offset if extents else head.next_offset
        if covered > frontier and covered > 0:
            self.fail(f"I4: offsets {frontier} to {covered} of {shard[-8:]} are neither in the table nor in the WAL")
        for one, following in pairwise(extents):
            if one.end_offset != following.base_offset:
                self.fail(f"I2: a hole or an overlap between extents of {shard[-8:]} at {one.end_offset}")
        if extents and extents[-1].end_offset != head.next_offset:
            self.fail(
                f"I2: the extents of {shard[-8:]} end at {extents[-1].end_offset}, the head at {head.next_offset}"
            )

    def _watch_bucket(self) -> None:
        auditor = self

        class Watched(dict[str, None]):
            def __setitem__(self, key: str, value: None) -> None:
                if key.startswith(WAL_PREFIX) and key in auditor.live_objects():
                    auditor.fail(f"I7: {key} is deleted while the log names it")
                super().__setitem__(key, value)

        self._objects.deleted = Watched()
