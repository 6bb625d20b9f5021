"""How far share groups are, one shard for each group and partition: which records are out with which member and until
when, how often each was delivered, and from where on nobody has had any.

One row, changed by compare-and-set by whichever broker is asked. There is no owner whose death would matter, and what
was acknowledged stays so whoever serves next.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple
from uuid import UUID

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Store, Transaction
from lakestream.model import StreamPartition

SHARES: Final = ("share/", "share0")
"""Range of all share partitions' shards ("0" is the character after "/")."""
_STATE: Final = "state"
_TAIL: Final = len("/") + 32 + len("/") + 8
"""What follows the group in a shard's name: the topic's id and the partition."""


class Delivery(IntEnum):
    """By Kafka's numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class ShareRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets [first, end) that are alike. `deliveries`: how often they were given to a member. `member`: who has them
    until `until_ms`, if they are acquired."""

    first: int
    end: int
    state: int
    deliveries: int
    member: str = ""
    until_ms: int = 0


class ShareState(msgspec.Struct, frozen=True, array_like=True):
    """What lies before `start` is done with; the ranges follow one another from there; what lies behind the last was
    never delivered. The first range is not done with, and neighbours differ."""

    stored_format: ClassVar[int] = 2

    start: int
    ranges: tuple[ShareRange, ...] = ()

    @property
    def end(self) -> int:
        return self.ranges[-1].end if self.ranges else self.start


class SharePartitionKey(NamedTuple):
    group: str
    partition: StreamPartition

    @property
    def address(self) -> Address:
        topic_id, index = self.partition
        return Address(f"{SHARES[0]}{self.group}/{topic_id.hex}/{index:08d}", _STATE)


class StoredShare(NamedTuple):
    """`state` is None, and the version `ABSENT`, where nobody in the group has asked for the partition yet."""

    state: ShareState | None
    version: int


async def read_shares(store: Store, keys: Iterable[SharePartitionKey]) -> list[StoredShare]:
    """Linearizable, in the order of the keys."""
    addresses = [key.address for key in keys]
    found = []
    for address, entry in zip(addresses, await store.get(addresses), strict=True):
        state = None if entry is None else codec.decode(entry.value, ShareState, address)
        found.append(StoredShare(state, ABSENT if entry is None else entry.version))
    return found


def write_of(key: SharePartitionKey, version: int, state: ShareState) -> Transaction:
    """Lands only where the row still has that version."""
    address = key.address
    return Transaction(address.shard, {_STATE: version}, {_STATE: codec.encode(state, address)})


async def share_partitions(store: Store, group: str) -> list[StreamPartition]:
    """Those that a group has begun with, in order."""
    prefix = f"{SHARES[0]}{group}"
    found = []
    for shard in await store.shards(f"{prefix}/", f"{prefix}0"):
        # A group's name may itself have slashes.
        if shard[:-_TAIL] == prefix:
            topic, index = shard[1 - _TAIL :].split("/")
            found.append(StreamPartition(UUID(topic), int(index)))
    return found


async def forget_shares(store: Store, group: str, partitions: Iterable[StreamPartition]) -> None:
    """Idempotent."""
    shards = [SharePartitionKey(group, each).address.shard for each in partitions]
    if shards:
        await store.transact([Transaction(shard, {}, {}, [_STATE]) for shard in shards])
