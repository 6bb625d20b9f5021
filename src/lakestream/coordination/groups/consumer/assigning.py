"""The coordinator's assignors: who is to have which partition. Pure, and the same for the same input.

- `uniform`: everybody as many as possible alike, and as much as possible stays where it was meant to be.
- `range`: of each topic a run of partitions, in the order of members, so that topics with as many partitions are cut
  alike.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final
from uuid import UUID

from lakestream.coordination.groups.consumer.model import Partitions

Subscriptions = Mapping[str, frozenset[UUID]]
"""Members' ids and the topics that each reads."""
Targets = dict[str, Partitions]
Assignor = Callable[[Subscriptions, Mapping[UUID, int], Mapping[str, Partitions], Sequence[str]], Targets]
"""Of subscriptions, the topics' numbers of partitions, the targets so far, and members in order."""

_Pair = tuple[UUID, int]


def assign_ranges(
    subscriptions: Subscriptions, topics: Mapping[UUID, int], before: Mapping[str, Partitions], order: Sequence[str]
) -> Targets:
    targets: dict[str, dict[UUID, frozenset[int]]] = {member: {} for member in subscriptions}
    for topic_id, partitions in topics.items():
        readers = [member for member in order if topic_id in subscriptions[member]]
        if not readers:
            continue
        share, more = divmod(partitions, len(readers))
        start = 0
        for position, member in enumerate(readers):
            end = start + share + (1 if position < more else 0)
            if end > start:
                targets[member][topic_id] = frozenset(range(start, end))
            start = end
    return dict(targets)


def assign_uniformly(
    subscriptions: Subscriptions, topics: Mapping[UUID, int], before: Mapping[str, Partitions], order: Sequence[str]
) -> Targets:
    readers: dict[UUID, list[str]] = {
        topic_id: [member for member in order if topic_id in subscriptions[member]] for topic_id in topics
    }
    held: dict[str, set[_Pair]] = {member: set() for member in order}
    taken: set[_Pair] = set()
    limits = _limits(subscriptions, topics, before, order)
    for member in order:
        for topic_id, indexes in before.get(member, {}).items():
            if topic_id not in subscriptions[member]:
                continue
            for index in sorted(indexes):
                pair = (topic_id, index)
                if index < topics.get(topic_id, 0) and pair not in taken and len(held[member]) < limits[member]:
                    held[member].add(pair)
                    taken.add(pair)
    # The topics with the fewest readers first: the others can even out what they leave uneven.
    for topic_id in sorted(topics, key=lambda each: (len(readers[each]), each.int)):
        missing = [index for index in range(topics[topic_id]) if (topic_id, index) not in taken]
        if not missing or not readers[topic_id]:
            continue
        least = [(len(held[member]), position, member) for position, member in enumerate(readers[topic_id])]
        heapify(least)
        for index in missing:
            load, position, member = least[0]
            held[member].add((topic_id, index))
            heapreplace(least, (load + 1, position, member))
    if len(set(subscriptions.values())) > 1:
        _even_out(held, readers)
    return {member: _gathered(pairs) for member, pairs in held.items()}


def _limits(
    subscriptions: Subscriptions, topics: Mapping[UUID, int], before: Mapping[str, Partitions], order: Sequence[str]
) -> Mapping[str, float]:
    """How many each may keep: where all read the same, an even share, and one more for those who have more already."""
    kinds = set(subscriptions.values())
    if len(kinds) != 1:
        return defaultdict(lambda: float("inf"))
    share, more = divmod(sum(topics.get(topic_id, 0) for topic_id in next(iter(kinds))), len(order))
    had = {member: sum(map(len, before.get(member, {}).values())) for member in order}
    largest = set(sorted(order, key=lambda member: -had[member])[:more])
    return {member: share + (1 if member in largest else 0) for member in order}


def _even_out(held: Mapping[str, set[_Pair]], readers: Mapping[UUID, Sequence[str]]) -> None:
    """Moves a partition to whoever reads its topic and has at least two fewer. Each move makes the sum of the squares
    smaller, so it ends; a bound keeps it from taking long, for which a fair share is not worth it."""
    moves = 2 * sum(map(len, held.values()))
    moved = True
    while moved and moves > 0:
        moved = False
        for giver in sorted(held, key=lambda each: -len(held[each])):
            for pair in sorted(held[giver], key=lambda each: (each[0].int, each[1])):
                taker = min(readers[pair[0]], key=lambda each: len(held[each]))
                if len(held[taker]) + 2 <= len(held[giver]):
                    held[giver].discard(pair)
                    held[taker].add(pair)
                    moved, moves = True, moves - 1


def _gathered(pairs: Collection[_Pair]) -> Partitions:
    found: dict[UUID, set[int]] = {}
    for topic_id, index in pairs:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
DEFAULT_ASSIGNOR: Final = "uniform"
