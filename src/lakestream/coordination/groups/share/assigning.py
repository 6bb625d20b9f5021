"""Which partitions members of a share group read: each partition by somebody, each member some. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from lakestream.coordination.groups.consumer.assigning import Subscriptions, Targets, assign_uniformly
from lakestream.coordination.groups.consumer.members import each_of
from lakestream.coordination.groups.consumer.model import Partitions


def assign_shared(
    subscriptions: Subscriptions, topics: Mapping[UUID, int], before: Mapping[str, Partitions], order: Sequence[str]
) -> Targets:
    """As even as can be without sharing; who has nothing then reads what the fewest others read, or what it read
    before if no more read that than have to."""
    targets = assign_uniformly(subscriptions, topics, before, order)
    readers = Counter(pair for target in targets.values() for pair in each_of(target))
    idle = [member for member in order if not targets[member] and subscriptions[member] & topics.keys()]
    most = -(-len(order) // max(1, sum(topics.values())))
    for member in idle:
        kept = [
            pair
            for pair in each_of(before.get(member, {}))
            if pair[0] in subscriptions[member] and pair[1] < topics.get(pair[0], 0) and readers[pair] < most
        ]
        pairs = [
            (topic, index) for topic in sorted(subscriptions[member] & topics.keys()) for index in range(topics[topic])
        ]
        if pairs:
            topic_id, index = kept[0] if kept else min(pairs, key=lambda pair: readers[pair])
            readers[topic_id, index] += 1
            targets[member] = {topic_id: frozenset((index,))}
    return targets
