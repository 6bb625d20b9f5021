"""Holds its own record of transactions: what each has sent, how its producer wanted it to end and was told that it did.

It compares with that all that enters the log, every snapshot of the table, what readers of committed records get, and
what a group's offsets become.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakestream.metadata.groups import CommittedOffset
from lakestream.metadata.groups.model import CLAIM, PENDING
from lakestream.metadata.log.head import Extent
from lakestream.metadata.store import Transaction as Change
from lakestream.model import StreamPartition
from lakestream.table.view import View
from simulator.auditor import Auditor
from simulator.batches import Row

if TYPE_CHECKING:
    from simulator.history import History

Identity = tuple[int, int]
"""A producer's id and epoch."""


@dataclass(eq=False, slots=True)
class Transaction:
    """`offset`: what it commits for its group, if it does. `wants`: how it is to end, once its producer has asked for
    that; `told`: how it did, as the producer heard. `decided`: what its first marker says. `entered`: offsets of its
    records in the log, by partition; `marked`: partitions that have a marker of it."""

    transactional_id: str
    number: int
    identity: Identity
    values: dict[bytes, StreamPartition] = field(default_factory=dict)
    offset: int | None = None
    wants: bool | None = None
    told: bool | None = None
    decided: bool | None = None
    entered: dict[StreamPartition, list[int]] = field(default_factory=dict)
    marked: set[StreamPartition] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"{self.transactional_id}#{self.number}"

    def is_split(self, frontier: Mapping[StreamPartition, int]) -> bool:
        places = [(partition, offset) for partition, offsets in self.entered.items() for offset in offsets]
        below = [offset < frontier.get(partition, 0) for partition, offset in places]
        return any(below) and not all(below)


class Ledger:
    def __init__(self, history: "History") -> None:
        self._history = history
        self._auditor: Auditor = history.auditor
        self.transactions: list[Transaction] = []
        self._of_value: dict[bytes, Transaction] = {}
        self._present: dict[Identity, Transaction] = {}
        """The last transaction of each identity, if its number is not known. In version 2 there is one for each. (What
        is not known here is begun by a late request of version 1, and has no records.)"""
        self._numbered: dict[tuple[Identity, int], Transaction] = {}
        """By the number that the coordinator told."""
        self._frontiers: dict[StreamPartition, int] = {}
        self.splits: dict[str, Sequence[str]] = {}
        """By location of a table's metadata, which transactional ids its snapshot names."""
        self._offsets: dict[StreamPartition, int] = {}

    def begun(self, transaction: Transaction) -> None:
        self.transactions.append(transaction)
        self._present[transaction.identity] = transaction

    def numbered(self, transaction: Transaction, number: int) -> None:
        self._numbered[transaction.identity, number] = transaction
        self._present.pop(transaction.identity, None)

    def sending(self, transaction: Transaction, partition: StreamPartition, values: Iterable[bytes]) -> None:
        for value in values:
            transaction.values[value] = partition
            self._of_value[value] = transaction

    def asks(self, transaction: Transaction, *, committed: bool) -> None:
        transaction.wants = committed

    def told(self, transaction: Transaction, *, committed: bool) -> None:
        self._history.world.trace(f"{transaction.name} is told: {'committed' if committed else 'aborted'}")
        if transaction.told not in (None, committed) or transaction.decided not in (None, committed):
            self._fail(transaction, f"is told that it is {'committed' if committed else 'aborted'}, and is not")
        transaction.told = committed

    def fenced(self, transaction: Transaction, what: str) -> None:
        """Somebody else had begun to use the id, and this producer was let through all the same."""
        self._fail(transaction, f"is fenced, and its producer could {what}", "I8")

    # What enters the log

    def entered(self, partition: StreamPartition, row: Row) -> None:
        transaction = self._of_value.get(row.value)
        if transaction is None:
            return
        if partition in transaction.marked:
            self._fail(transaction, f"has a record at {partition.index}/{row.offset}, behind its marker", "I8")
        transaction.entered.setdefault(partition, []).append(row.offset)

    def marked(self, partition: StreamPartition, extent: Extent) -> None:
        """Nobody needs to be served the marker itself, nor what it aborts."""
        marker = extent.marker
        assert marker is not None
        gaps = self._auditor.deleted.setdefault(partition, {})
        gaps[extent.base_offset] = None
        identity = (marker.producer_id, marker.epoch)
        transaction = self._numbered.get((identity, marker.number)) or self._present.get(identity)
        if transaction is None:
            return
        self._history.world.trace(
            f"{transaction.name} is {'committed' if marker.committed else 'aborted'} at"
            f" {partition.index}/{extent.base_offset}"
        )
        if marker.committed and not transaction.wants:
            self._fail(transaction, "is committed, which nobody asked for")
        if transaction.told not in (None, marker.committed) or transaction.decided not in (None, marker.committed):
            self._fail(transaction, f"ends in two ways: another in partition {partition.index}")
        if partition in transaction.marked:
            self._fail(transaction, f"has two markers in partition {partition.index}")
        transaction.decided = marker.committed
        transaction.marked.add(partition)
        if not marker.committed:
            gaps.update(dict.fromkeys(transaction.entered.get(partition, ())))

    def stable_end(self, partition: StreamPartition, end: int) -> int:
        """Before the first record of what has not ended there."""
        opened = (min(found) for each, found in self._entered_in(partition) if partition not in each.marked)
        return min(opened, default=end)

    # What readers see

    def table(self, view: View, rows: Iterable[Row]) -> None:
        """I5: committed records only, and each transaction's in one snapshot, unless the snapshot says so."""
        for row in rows:
            transaction = self._of_value.get(row.value)
            if transaction is not None and not transaction.decided:
                self._fail(transaction, f"is not committed, and {row.value!r} is in the table at {row.offset}")
        before = dict(self._frontiers)
        for index, frontier in enumerate(view.frontier):
            self._frontiers[StreamPartition(view.topic_id, index)] = frontier
        for each in self.transactions:
            if not each.decided or not each.is_split(self._frontiers) or each.is_split(before):
                continue
            if each.transactional_id not in self.splits.get(view.metadata_location, ()):
                self._fail(each, f"is in the table in part, with frontier {view.frontier}, and the snapshot is silent")
            self._history.world.trace(f"{each.name} is split by {view.frontier}")

    def read(self, partition: StreamPartition, rows: Iterable[Row], last_stable_offset: int, who: str) -> None:
        """By a reader of committed records."""
        for row in rows:
            transaction = self._of_value.get(row.value)
            if transaction is not None and not (transaction.decided and partition in transaction.marked):
                self._fail(transaction, f"is not committed, and {who} reads {row.value!r} at {row.offset}")
        stable = self.stable_end(partition, self._history.watcher.end_offset(partition))
        if last_stable_offset > max(stable, self._history.watcher.log_start(partition)):
            self._auditor.fail(
                f"I3: {who} is told that partition {partition.index} is stable up to {last_stable_offset}, and a"
                f" transaction is open from {stable} on"
            )

    def committed(self, partition: StreamPartition, offset: CommittedOffset) -> None:
        """A group's offset is stored. Those of transactions come in pairs, see `pair`."""
        transaction = next((each for each in self.transactions if _is_of(each, partition, offset.offset)), None)
        if transaction is None:
            return
        if not transaction.wants or transaction.told is False or transaction.decided is False:
            self._fail(transaction, "is not committed, and its offset is", "I9")
        self._offsets[partition] = offset.offset

    def group_changed(self) -> None:
        """After a whole transaction of the store."""
        for first, second in self._pairs():
            if self._offsets.get(first) != self._offsets.get(second):
                self._auditor.fail(
                    f"I9: a transaction's offsets are stored in part: {self._offsets.get(first)} for {first.index},"
                    f" {self._offsets.get(second)} for {second.index}"
                )

    def is_settled(self) -> bool:
        """Every end that was told is in the group's offsets."""
        return all(
            self._offsets.get(place, -1) >= (each.offset or 0)
            for each in self.transactions
            if each.offset is not None and each.told
            for place in pair(self._topic, each.transactional_id)
        )

    @property
    def _topic(self) -> StreamPartition:
        return self._history.partitions()[0]

    def _pairs(self) -> Iterator[tuple[StreamPartition, StreamPartition]]:
        for name in dict.fromkeys(each.transactional_id for each in self.transactions):
            yield pair(self._topic, name)

    def _entered_in(self, partition: StreamPartition) -> Iterator[tuple[Transaction, list[int]]]:
        for each in self.transactions:
            if found := each.entered.get(partition):
                yield each, found

    def _fail(self, transaction: Transaction, what: str, rule: str = "I5") -> None:
        self._auditor.fail(f"{rule}: transaction {transaction.name} {what}")


def pair(place: StreamPartition, transactional_id: str) -> tuple[StreamPartition, StreamPartition]:
    """Two partitions that nobody writes to, for which a transaction commits the same offset."""
    number = 900 + 2 * int(transactional_id.removeprefix("t"))
    return StreamPartition(place.topic_id, number), StreamPartition(place.topic_id, number + 1)


def _is_of(transaction: Transaction, partition: StreamPartition, offset: int) -> bool:
    return transaction.offset == offset and partition in pair(partition, transaction.transactional_id)


def ends_transaction(change: Change) -> bool:
    """What it has pending in a group goes, and is or is not the group's from then on. Whoever ends it does that, under
    the group's claim."""
    others = change.puts.keys() - {CLAIM}
    turns = all(key.startswith("o/") for key in others) and not change.delete_ranges
    goes = all(key.startswith(PENDING[0]) for key in change.deletes)
    return turns and goes and CLAIM in change.puts and bool(change.deletes or not others)
