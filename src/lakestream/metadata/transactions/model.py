"""What the rows of a transactional id hold, and under which keys.

All rows of an id are in one shard. The state's version guards the others: a partition or a group is enlisted by a write
that checks it and leaves it as it is, so that many may enlist at once; preparing the end rewrites it, after which
nothing enlists any more.
"""

from hashlib import blake2b
from typing import ClassVar, Final, Literal
from uuid import UUID

import msgspec

from lakestream.metadata.store import Address
from lakestream.model import StreamPartition

SHARDS: Final = ("txn/", "txn0")
"""Range of the shards of all transactional ids ("0" is the character after "/")."""
STATE: Final = "state"
TIMER: Final = "timer"
"""A lease that whoever sweeps takes for a transaction that goes on: when it has lapsed, by the store's clock, the
transaction is overdue. Its holder is the transaction's number."""
ENLISTED: Final = ("g/", "p0")
"""Range of enlisted groups and partitions."""
OPEN_SHARDS: Final = 16
"""Over so many shards the list of ids that may have a transaction open is spread."""

_GROUP: Final = "g/"
_PARTITION: Final = "p/"
_MAX_NAME_BYTES: Final = 200
_HASHED: Final = "#"

Phase = Literal["EMPTY", "ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT", "COMPLETE_COMMIT", "COMPLETE_ABORT"]


class TransactionEnd(msgspec.Struct, frozen=True, array_like=True):
    """How a transaction ended, or is being ended: whose batches those of it are, and the epoch that fences what comes
    late of it (None: the epoch goes on). `by_client`: the producer asked for it, and may ask again."""

    producer_id: int
    epoch: int
    committed: bool
    next_epoch: int | None
    by_client: bool


class TransactionState(msgspec.Struct, frozen=True, array_like=True):
    """Of one transactional id. `producer_id` and `epoch` are those in which its producer may write, from the moment on
    in which the end of a transaction is prepared those of the next one.

    `number` counts the id's transactions: of the present one, or of the last. `last_epoch`: the epoch before this one,
    if the producer itself asked for the new one: it may ask again. -1: another producer did. `is_indexed`: the id is on
    the list of those that may have a transaction open.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    changed_ms: int
    phase: Phase = "EMPTY"
    number: int = 0
    started_ms: int = -1
    last_epoch: int = -1
    previous_producer_id: int = -1
    is_indexed: bool = False
    end: TransactionEnd | None = None

    stored_format: ClassVar[int] = 2

    @property
    def is_ending(self) -> bool:
        return self.phase in ("PREPARE_COMMIT", "PREPARE_ABORT")


def name_of(transactional_id: str) -> str:
    """The id where it is short, as nearly all are; else a name of bounded length, which no short id has."""
    if len(transactional_id.encode()) <= _MAX_NAME_BYTES and not transactional_id.startswith(_HASHED):
        return transactional_id
    return _HASHED + blake2b(transactional_id.encode(), digest_size=32).hexdigest()


def shard_of(transactional_id: str) -> str:
    return f"{SHARDS[0]}{name_of(transactional_id)}"


def state_address(transactional_id: str) -> Address:
    return Address(shard_of(transactional_id), STATE)


def open_address(transactional_id: str) -> Address:
    """Where the list names the id that may have a transaction open."""
    name = name_of(transactional_id)
    return Address(open_shard(int.from_bytes(blake2b(name.encode(), digest_size=4).digest()) % OPEN_SHARDS), name)


def open_shard(number: int) -> str:
    return f"open-txn/{number:02d}"


def partition_key(partition: StreamPartition) -> str:
    return f"{_PARTITION}{partition.topic_id.hex}/{partition.index:08d}"


def group_key(group: str) -> str:
    return f"{_GROUP}{name_of(group)}"


def partition_of(key: str) -> StreamPartition | None:
    """None: the key is not that of a partition."""
    if not key.startswith(_PARTITION):
        return None
    _, topic, index = key.split("/")
    return StreamPartition(UUID(topic), int(index))
