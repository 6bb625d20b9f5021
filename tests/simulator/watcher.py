"""Follows every write to the metadata store and every delete in the bucket, at the moment it happens.

From those alone it knows, at any time, what the log, the tables and the groups say, without asking the code under test.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from lakestream.frontier.upkeep.compaction import folded_ms
from lakestream.metadata import codec
from lakestream.metadata.groups import CommittedOffset, GroupState
from lakestream.metadata.log.head import EXTENTS, HEAD, MARKER_EXTENT, PRODUCERS, Extent, Head, partition_of, shard_of
from lakestream.metadata.names.pointers import Pointer
from lakestream.metadata.store import Address, Applied, Outcome, Transaction
from lakestream.model import StreamPartition
from lakestream.table.view import View
from lakestream.wal import WAL_PREFIX, parse_key
from simulator.auditor import Auditor
from simulator.backends import SimulatedObjects, SimulatedStore
from simulator.batches import Row, rows
from simulator.leaving import Leaving
from simulator.ledger import Ledger, ends_transaction
from simulator.membership import Membership, committed_to
from simulator.policies import Policy
from simulator.tables import decode_rows, fetched_rows
from simulator.world import Process, World, current_process, run_now


class _Saved(NamedTuple):
    """A group's generation, and the lease under which it was saved."""

    generation: int
    phase: str
    lease: int


class Watcher:
    def __init__(
        self,
        world: World,
        store: SimulatedStore,
        objects: SimulatedObjects,
        tables: Mapping[str, View],
        auditor: Auditor,
        policy: Policy,
        disks: Iterable[SimulatedObjects] = (),
    ) -> None:
        self._world = world
        self._core = store.core
        self._objects = objects
        self._tables = tables
        self._auditor = auditor
        self._policy = policy
        self._leaving = Leaving(auditor, policy)
        self._heads: dict[str, Head] = {}
        self._log_starts: dict[str, int] = {}
        self._extents: dict[str, list[Extent]] = {}
        self._deleted: set[str] = set()
        self._entered: dict[tuple[str, str, int], int] = {}
        """Shard, object and position → the offset at which these bytes entered the log."""
        """Shard, object and position of every extent that ever was."""
        self._appended: dict[str, dict[bytes, int]] = {}
        """Shard → value → its offset, of everything that ever entered the log."""
        self._views: dict[str, View] = {}
        self._rows: dict[str, list[Row]] = {}
        """Path of a table's file → what is in it. Files never change."""
        self._offsets: dict[Address, int] = {}
        self._generations: dict[str, _Saved] = {}
        self.membership: Membership | None = None
        self.ledger: Ledger | None = None
        self._watch_store()
        self._watch_releases()
        self._stores = [objects, *disks]
        for each in self._stores:
            each.on_delete = partial(self._deleting, each)
        auditor.stored = self.check_acked
        auditor.located = self.locate

    def view(self, topic: UUID) -> View:
        """The topic's table as it stands."""
        found = self._views.get(f"table/{topic.hex}")
        if found is None:
            self._auditor.fail(f"I5: topic {topic.hex[:4]} has no table of its own")
        return found

    def is_there(self, partition: StreamPartition) -> bool:
        """It has a log and a table: nobody is just creating or deleting it."""
        return shard_of(partition) in self._heads and f"table/{partition.topic_id.hex}" in self._views

    def log_start(self, partition: StreamPartition) -> int:
        """Of a log that was deleted: where it began."""
        return self._log_starts.get(shard_of(partition), 0)

    def end_offset(self, partition: StreamPartition) -> int:
        return self._heads.get(shard_of(partition), Head()).next_offset

    def caught_up(self, partition: StreamPartition) -> bool:
        head = self._heads.get(shard_of(partition))
        return head is not None and head.frontier == head.next_offset

    def producers(self, partition: StreamPartition) -> int:
        """How many producers have rows there."""
        return len(run_now(self._core.range(shard_of(partition), *PRODUCERS)))

    def object_data(self, key: str, but: SimulatedObjects | None = None) -> bytes | None:
        """A WAL object, from whatever store has it."""
        for objects in self._stores:
            if objects is not but and key in objects.objects:
                return objects.objects[key]
        return None

    def live_objects(self) -> set[str]:
        return {extent.object_key for extents in self._extents.values() for extent in extents}

    def logs_beside(self, partitions: Sequence[StreamPartition]) -> list[str]:
        """Logs of other partitions than these that keep objects alive. Of a topic whose creation was cut off empty
        heads stay, which nobody can find."""
        return [shard for shard, extents in self._extents.items() if extents and partition_of(shard) not in partitions]

    def check_acked(self, partition: StreamPartition, base: int, values: Sequence[bytes]) -> None:
        """I4: what was just acknowledged is in the table or in an object that the log names, byte for byte."""
        shard = shard_of(partition)
        if shard not in self._heads:
            return
        view = self._views.get(f"table/{partition.topic_id.hex}")
        frontier = view.frontier[partition.index] if view is not None else 0
        for offset, value in enumerate(values, base):
            if offset in self._auditor.deleted.get(partition, {}) or offset in self._auditor.retired.get(partition, {}):
                continue
            found = [row.value for row in self._held(shard, partition, offset, frontier) if row.offset == offset]
            if found != [value]:
                self._auditor.fail(f"I3/I4: {value!r} is acknowledged at {partition.index}/{offset}: stored is {found}")

    def locate(self, partition: StreamPartition, values: Sequence[bytes]) -> int | None:
        """I3: what counts as acknowledged without an offset did enter the log, as one batch."""
        shard = shard_of(partition)
        if shard not in self._heads:
            return None
        offsets = self.offsets_of(partition, values)
        first = offsets[0]
        if first is None or offsets != list(range(first, first + len(values))):
            self._auditor.fail(f"I3: {values[0]!r} is acknowledged as a duplicate, and was never appended: {offsets}")
        return first

    def offsets_of(self, partition: StreamPartition, values: Sequence[bytes]) -> list[int | None]:
        """Where they entered the log, or None each. Empty: the log is gone."""
        shard = shard_of(partition)
        appended = self._appended.get(shard, {})
        return [appended.get(value) for value in values] if shard in self._heads else []

    def table_rows(self, view: View) -> list[Row]:
        return fetched_rows(self.stored_rows(view), view)

    def stored_rows(self, view: View) -> list[Row]:
        """As they are in the files."""
        return [row for file in view.files for row in self._file(file.path)]

    def _held(self, shard: str, partition: StreamPartition, offset: int, frontier: int) -> list[Row]:
        if offset < frontier:
            view = self.view(partition.topic_id)
            return [row for row in self.table_rows(view) if row.partition == partition.index]
        for extent in self._extents[shard]:
            if extent.base_offset <= offset < extent.end_offset:
                data = (self.object_data(extent.object_key) or b"")[extent.position : extent.position + extent.length]
                return rows(data, partition.index, extent.base_offset)
        return []

    def _file(self, path: str) -> list[Row]:
        found = self._rows.get(path)
        if found is None:
            data = self._objects.objects.get(path.removeprefix(self._objects.url + "/"))
            if data is None:
                self._auditor.fail(f"I4: a table names {path}, which is not in the bucket")
            found = self._rows[path] = decode_rows(data)
        return found

    def _watch_store(self) -> None:
        apply: Callable[[Transaction], Outcome] = self._core._apply

        def watched(transaction: Transaction) -> Outcome:
            lease = self._lease(Address(transaction.shard, "lease")) if transaction.shard.startswith("group/") else None
            outcome = apply(transaction)
            if isinstance(outcome, Applied):
                self._changed(transaction, lease)
            return outcome

        self._core._apply = watched  # type: ignore[method-assign]

    def _watch_releases(self) -> None:
        """I8: only its holder, or a dead broker's successor, gives a lease up. A transaction's timer is nobody's."""
        release = self._core.release_lease

        async def watched(address: Address, token: int) -> None:
            held = self._lease(address)
            await release(address, token)
            if held is None or self._lease(address) is not None or address.shard.startswith("txn/"):
                return
            if not (self._is_held_by_caller(held[0]) or (address.shard == "brokers" and self._is_successor(held[0]))):
                self._auditor.fail(f"I8: {self._who()} gave up the lease of {address.shard} that {held[0]} held")

        self._core.release_lease = watched  # type: ignore[method-assign]

    def _changed(self, transaction: Transaction, lease: tuple[str, int] | None) -> None:
        shard = transaction.shard
        if shard.startswith("log/"):
            self._head_changed(shard)
        elif shard.startswith("group/"):
            self._group_changed(transaction, lease)
        elif shard.startswith("table/") and "pointer" in transaction.puts:
            self._table_changed(transaction)

    def _table_changed(self, transaction: Transaction) -> None:
        """I5 and I6, for every snapshot of every table. Detached tables count: their rows stay their owner's."""
        shard = transaction.shard
        pointer = codec.decode(transaction.puts["pointer"], Pointer, Address(shard, "pointer"))
        view = self._tables[pointer.metadata_location]
        before = self._views.get(shard)
        old = () if before is None else before.frontier
        if len(view.frontier) < len(old) or any(now < then for now, then in zip(view.frontier, old, strict=False)):
            self._auditor.fail(f"I6: a table's frontier fell from {old} to {view.frontier}")
        if before is None or before.files != view.files or old != view.frontier:
            now = self.table_rows(view)
            if before is not None and (self._policy.drops or self._policy.folds):
                self._leaving.judge(view.topic_id, self.table_rows(before), now, self.log_start)
            if self._policy.folds:
                marks = [(folded_ms(file) is not None, self._file(file.path)) for file in view.files]
                self._leaving.judge_marks(
                    [row for is_marked, found in marks if is_marked for row in found],
                    [row for is_marked, found in marks if not is_marked for row in found],
                )
            if self.ledger is not None:
                self.ledger.table(view, now)
            self._auditor.audit_table(view.topic_id, now, view)
            self._world.trace(f"table {shard[6:10]} now has {view.frontier}")
        self._views[shard] = view

    def _group_changed(self, transaction: Transaction, lease: tuple[str, int] | None) -> None:
        """I8: only who held the lease until then writes. I9: nobody in the simulation ever seeks back, so no committed
        offset may fall; and a generation is given once, so it may begin again only under the same lease."""
        shard = transaction.shard
        if not ends_transaction(transaction) and (lease is None or not self._is_held_by_caller(lease[0])):
            holder = "nobody" if lease is None else lease[0]
            self._auditor.fail(f"I8: {self._who()} writes rows of {shard}, whose lease is held by {holder}")
        for key, value in transaction.puts.items():
            address = Address(shard, key)
            if key.startswith("o/"):
                self._committed(address, codec.decode(value, CommittedOffset, address))
            elif key == "state":
                state = codec.decode(value, GroupState, address)
                saved = _Saved(state.generation, state.phase, lease[1])
                before = self._generations.get(shard, _Saved(0, "", 0))
                begins_again = saved.phase == "COMPLETING" and saved.lease != before.lease
                if saved.generation < before.generation or (saved.generation == before.generation and begins_again):
                    self._auditor.fail(f"I9: generation {saved} of {shard} was saved after {before}")
                self._generations[shard] = saved
        if self.ledger is not None:
            self.ledger.group_changed()
        self._group_lost(transaction)

    def _committed(self, address: Address, committed: CommittedOffset) -> None:
        if committed.offset < self._offsets.get(address, 0):
            before = self._offsets[address]
            self._auditor.fail(f"I9: {address.key} of {address.shard} fell from {before} to {committed.offset}")
        self._offsets[address] = committed.offset
        if self.ledger is not None:
            self.ledger.committed(committed_to(address.key), committed)
        if self.membership is not None:
            self.membership.stored(committed.metadata, committed_to(address.key))

    def _group_lost(self, transaction: Transaction) -> None:
        """I9: what lapses or is deleted may begin anew; offsets of a group in use stay, but for dead topics."""
        shard = transaction.shard
        deleted = [Address(shard, key) for key in transaction.deletes]
        ranges = transaction.delete_ranges
        deleted += [at for at in self._offsets if any(start <= at.key < end for start, end in ranges)]
        for address in deleted:
            if self._offsets.pop(address, None) is None or committed_to(address.key).topic_id in self._auditor.gone:
                continue
            if self.membership is not None and self.membership.is_in_use():
                self._auditor.fail(f"I9: {self._who()} forgets {address.key} of {shard}, which is in use")
        if "state" in transaction.deletes:
            self._generations.pop(shard, None)

    def _head_changed(self, shard: str) -> None:
        entries = run_now(self._core.range(shard, *EXTENTS))
        [entry] = run_now(self._core.get([Address(shard, HEAD)]))
        if entry is None:
            if self._heads.pop(shard, None) is not None:
                self._deleted.add(shard)
            self._extents.pop(shard, None)
            return
        if shard in self._deleted:
            self._auditor.fail(f"I8: {self._who()} brings the deleted {shard} back, whose missing head is a fence")
        head = codec.decode(entry.value, Head, Address(shard, HEAD))
        before = self._heads.get(shard, Head())
        for name in ("next_offset", "log_start", "frontier", "fence", "expired_producers"):
            if getattr(head, name) < getattr(before, name):
                self._auditor.fail(
                    f"I6: {name} of {shard[-8:]} fell from {getattr(before, name)} to {getattr(head, name)}"
                )
        if head.log_start > self._furthest_start(head):
            self._auditor.fail(f"I3: the log start of {shard[-8:]} moved to {head.log_start}")
        extents = [codec.decode(each.value, Extent, Address(shard, each.key)) for each in entries]
        self._check_tail(shard, head, extents)
        for extent in extents:
            if extent.kind != MARKER_EXTENT and self.object_data(extent.object_key) is None:
                self._auditor.fail(f"I4: the log names {extent.object_key}, which is in no store")
            if extent.base_offset >= before.next_offset:
                self._enter(shard, extent, before.fence)
        self._heads[shard], self._extents[shard] = head, extents
        self._log_starts[shard] = head.log_start

    def _furthest_start(self, head: Head) -> int:
        """Where the log may begin at the most."""
        if self._policy.deletes:
            return head.next_offset
        return head.frontier if self._policy.moves_start else 0

    def _enter(self, shard: str, extent: Extent, fence: int) -> None:
        """I8: nothing below the fence enters the log. I1: bytes that were uploaded once enter it once."""
        if extent.kind == MARKER_EXTENT:
            if self.ledger is not None:
                self.ledger.marked(partition_of(shard), extent)
            return
        if parse_key(extent.object_key).generation < fence:
            self._auditor.fail(f"I8: {extent.object_key} is below the fence {fence} and was committed")
        place = (shard, extent.object_key, extent.position)
        if place in self._entered:
            self._auditor.fail(f"I1: {extent.object_key} enters {shard[-8:]} a second time, at {extent.base_offset}")
        self._entered[place] = extent.base_offset
        data = (self.object_data(extent.object_key) or b"")[extent.position : extent.position + extent.length]
        appended = self._appended.setdefault(shard, {})
        for row in rows(data, 0, extent.base_offset):
            if row.value in appended:
                self._auditor.entered_again(partition_of(shard), row)
            appended[row.value] = row.offset
            if self.ledger is not None:
                self.ledger.entered(partition_of(shard), row)

    def entered_at(self, partition: StreamPartition, object_key: str, position: int) -> int | None:
        """None: these bytes never did."""
        return self._entered.get((shard_of(partition), object_key, position))

    def _check_tail(self, shard: str, head: Head, extents: list[Extent]) -> None:
        """I4: what is not in an extent is in the table. I2: extents are dense up to the end."""
        partition = partition_of(shard)
        view = self._views.get(f"table/{partition.topic_id.hex}")
        frontier = view.frontier[partition.index] if view is not None else 0
        covered = extents[0].base_offset if extents else head.next_offset
        if covered > frontier:
            self._auditor.fail(
                f"I4: offsets {frontier} to {covered} of {shard[-8:]} are neither in the table nor in the WAL"
            )
        for one, following in pairwise(extents):
            if one.end_offset != following.base_offset:
                self._auditor.fail(f"I2: a hole or an overlap between extents of {shard[-8:]} at {one.end_offset}")
        if extents and extents[-1].end_offset != head.next_offset:
            self._auditor.fail(
                f"I2: the extents of {shard[-8:]} end at {extents[-1].end_offset}, the head at {head.next_offset}"
            )

    def _deleting(self, objects: SimulatedObjects, key: str) -> None:
        """I7: nothing is deleted that the log or any table names, unless another store has a copy."""
        if key.startswith(WAL_PREFIX):
            if key in self.live_objects() and self.object_data(key, but=objects) is None:
                self._auditor.fail(f"I7: {self._who()} deletes {key} while the log names it")
            return
        path = f"{self._objects.url}/{key}"
        for view in self._views.values():
            if any(file.path == path for file in view.files):
                self._auditor.fail(f"I7: {self._who()} deletes {key} while a table names it")

    def coordinates(self, group: str, process: Process | None) -> bool:
        """Whether the group's lease is that of this process."""
        lease = self._lease(Address(f"group/{group}", "lease"))
        return lease is not None and self._auditor.holders.get(lease[0]) is process

    def _lease(self, address: Address) -> tuple[str, int] | None:
        """Holder and token as the store's row says, expired or not."""
        [entry] = run_now(self._core.get([address]))
        if entry is None:
            return None
        return codec.decode_holder(entry.value, address) or "", entry.version

    def _is_held_by_caller(self, holder: str) -> bool:
        caller = current_process()
        known = self._auditor.holders.get(holder)
        return caller is known if known is not None else caller is not None and holder.startswith(caller.name)

    def _is_successor(self, holder: str) -> bool:
        caller, before = current_process(), self._auditor.holders.get(holder)
        return caller is not None and before is not None and not before.alive and caller.name == before.name

    @staticmethod
    def _who() -> str:
        process = current_process()
        return "somebody" if process is None else process.name
