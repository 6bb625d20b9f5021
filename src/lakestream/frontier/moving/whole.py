"""How far the partitions of a topic may go into its table together, so that no snapshot has a part of a transaction.
Pure.

A transaction's records in a partition lie within one range of offsets, and its marker there names all partitions of the
topic that it was enlisted in. A vector of ends *splits* a committed transaction if the rows that it brings are some of
the transaction's and not all. Where each of two vectors splits none, neither does the greater of them by partition: so
there is a greatest one, and two workers that commit side by side agree.

Nothing here is about aborted transactions: they have no rows. Open ones have no records below the last stable offset,
which no end is beyond.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

Transaction = tuple[str, int]
"""A transactional id, and which of its transactions."""
Ends = Mapping[int, int]
"""An offset by partition: what is below is meant."""


@dataclass(frozen=True, slots=True)
class EndedPart:
    """What a marker in one partition's tail tells. The transaction's records there are among [start, end), which is
    empty if it has none; `partitions`: all of the topic that it was enlisted in."""

    transaction: Transaction
    producer_id: int
    committed: bool
    start: int
    end: int
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """A committed transaction as the tails show it. `parts`: where its records are, by partition. `unseen`: partitions
    that it was enlisted in and whose marker is in no tail: it may be still to come."""

    transaction: Transaction
    producer_id: int
    parts: Mapping[int, tuple[int, int]]
    unseen: frozenset[int]

    def rest(self, starts: Ends) -> Iterable[tuple[int, int, int]]:
        """(partition, start, end) of what is not below `starts`."""
        for index, (start, end) in self.parts.items():
            if starts.get(index, 0) < end:
                yield index, max(start, starts.get(index, 0)), end


def committed(
    tails: Mapping[int, Iterable[EndedPart]], gone: AbstractSet[int] = frozenset()
) -> list[CommittedTransaction]:
    """`tails`: what the markers of each partition tell. `gone`: partitions that are no more."""
    parts: dict[Transaction, dict[int, tuple[int, int]]] = {}
    seen: dict[Transaction, set[int]] = {}
    listed: dict[Transaction, EndedPart] = {}
    for index, ended in tails.items():
        for each in ended:
            if not each.committed:
                continue
            listed[each.transaction] = each
            seen.setdefault(each.transaction, set()).add(index)
            found = parts.setdefault(each.transaction, {})
            if each.start < each.end:
                found[index] = (each.start, each.end)
    return [
        CommittedTransaction(name, each.producer_id, parts[name], each.partitions - seen[name] - gone)
        for name, each in listed.items()
    ]


def greatest(
    starts: Ends, caps: Ends, transactions: Sequence[CommittedTransaction], free: AbstractSet[int] = frozenset()
) -> dict[int, int]:
    """The greatest ends, from `starts` to `caps`, that split none of the transactions. Partitions in `free` go to their
    caps all the same, and whatever that splits is not held against the others.

    Taken down from the caps: a transaction that does not fit in whole goes out everywhere, which may take others out.
    """
    ends = {index: max(cap, starts.get(index, 0)) for index, cap in caps.items()}
    bound: dict[int, list[tuple[int, int]]] = {}
    rests = [[each for each in one.rest(starts) if each[0] not in free] for one in transactions]
    for number, rest in enumerate(rests):
        for index, _, end in rest:
            bound.setdefault(index, []).append((end, number))
    for waiting in bound.values():
        waiting.sort()
    out = [number for number, one in enumerate(transactions) if one.unseen]
    taken = set(out)

    def lower(index: int, offset: int) -> None:
        ends[index] = min(offset, ends.get(index, starts.get(index, 0)))
        waiting = bound.get(index, [])
        while waiting and waiting[-1][0] > ends[index]:
            _, number = waiting.pop()
            if number not in taken:
                taken.add(number)
                out.append(number)

    for index in bound:
        lower(index, ends.get(index, starts.get(index, 0)))
    while out:
        for index, start, _ in rests[out.pop()]:
            lower(index, start)
    return ends


def split(starts: Ends, ends: Ends, transactions: Iterable[CommittedTransaction]) -> list[Transaction]:
    """Those of which a table that goes from `starts` to `ends` gets new rows, and does not have all."""
    found = []
    for one in transactions:
        rest = list(one.rest(starts))
        gets = any(ends.get(index, 0) > start for index, start, _ in rest)
        if gets and (one.unseen or any(ends.get(index, 0) < end for index, _, end in rest)):
            found.append(one.transaction)
    return found
