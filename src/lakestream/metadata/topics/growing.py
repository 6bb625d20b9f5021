"""More partitions for a topic that is there.

The heads of the new partitions are made first, then the topic's rows say so: a partition that is listed has its head,
whoever crashes in between, and whoever tries again finds heads as they are. The id's row is rewritten together with the
name's, because a delete goes by it: either the delete knows of the new partitions, or they are never listed.
"""

import asyncio

import msgspec

from lakestream.errors import InvalidPartitions, UnknownStream
from lakestream.metadata import codec
from lakestream.metadata.log.partition import create_head, delete_log
from lakestream.metadata.store import Address, Applied, Store, Transaction
from lakestream.metadata.topics.list import LAST_ALTERED, MAX_PARTITIONS, SHARD, Topic, Topics


async def grow(store: Store, topics: Topics, name: str, partitions: int, *, dry_run: bool = False) -> Topic:
    """The topic with so many partitions. Raises `UnknownStream`, `InvalidPartitions` unless that is more than it has
    now, at the time of the change: of two who ask at once for the same, one is told that the topic has them."""
    by_name = Address(SHARD, f"name/{name}")
    while True:
        [named] = await store.get([by_name])
        if named is None:
            raise UnknownStream(f"there is no topic {name}")
        topic = codec.decode(named.value, Topic, by_name)
        check_growth(topic, partitions)
        by_id = Address(SHARD, f"id/{topic.topic_id.hex}")
        [known] = await store.get([by_id])
        grown = msgspec.structs.replace(topic, partitions=partitions)
        if known is None:
            raise UnknownStream(f"topic {name} is being deleted")
        if dry_run:
            return grown
        new = grown.each_partition()[topic.partitions :]
        await asyncio.gather(*(create_head(store, partition) for partition in new))
        rows = {
            by_name.key: codec.encode(grown, by_name),
            by_id.key: codec.encode(name, by_id),
            LAST_ALTERED.key: codec.encode(topic.topic_id, LAST_ALTERED),
        }
        checks = {by_name.key: named.version, by_id.key: known.version}
        [outcome] = await store.transact([Transaction(SHARD, checks, rows)])
        if isinstance(outcome, Applied):
            return topics.remember(grown)
        if outcome.current.get(by_id.key, known) is None:
            # Deleted, for good: an id is never listed again. While the topic lives its heads stay, for another who
            # grows it may count on them.
            await asyncio.gather(*(delete_log(store, partition) for partition in new))
            raise UnknownStream(f"topic {name} was deleted meanwhile")


def check_growth(topic: Topic, partitions: int) -> None:
    """Raises `InvalidPartitions`."""
    if partitions == topic.partitions:
        raise InvalidPartitions(f"topic {topic.name} has {partitions} partitions already")
    if partitions < topic.partitions:
        raise InvalidPartitions(f"topic {topic.name} has {topic.partitions} partitions: {partitions} would not be more")
    if partitions > MAX_PARTITIONS:
        raise InvalidPartitions(f"{topic.name} cannot have {partitions} partitions: choose up to {MAX_PARTITIONS}")
