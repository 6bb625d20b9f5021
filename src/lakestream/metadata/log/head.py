"""Head, extents and producer states of one partition: what is stored, and under which keys.

All rows of a partition are in one shard and guarded by the head's version: whoever
changes any of them checks and rewrites the head in the same transaction.
"""

from functools import lru_cache
from typing import ClassVar, Final
from uuid import UUID

import msgspec

from lakestream.model import StreamPartition

HEAD: Final = "head"
EXTENTS: Final = ("x/", "x0")
"""Range of all extent keys ("0" is the character after "/")."""
PRODUCERS: Final = ("p/", "p0")
OPEN: Final = ("o/", "o0")
"""Range of the keys of all transactions that are open in the partition, in order of their first offsets."""
NO_NUMBER: Final = -1
"""Of no transaction. Those of a transactional id grow from 0 on."""


@lru_cache(maxsize=16_384)
def shard_of(partition: StreamPartition) -> str:
    return f"log/{partition.topic_id.hex}/{partition.index:08d}"


def partition_of(shard: str) -> StreamPartition:
    _, topic, index = shard.split("/")
    return StreamPartition(UUID(topic), int(index))


def logs_of(topic_id: UUID) -> tuple[str, str]:
    """The range of the shards of all partitions that a topic ever had."""
    return f"log/{topic_id.hex}/", f"log/{topic_id.hex}0"


def extent_key(end_offset: int) -> str:
    """Keyed by the exclusive end: the extents that hold an offset or what follows it are one range, and so
    are those that a frontier has passed."""
    return f"x/{end_offset:016x}"


def producer_key(producer_id: int) -> str:
    return f"p/{producer_id:016x}"


def open_key(first_offset: int) -> str:
    return f"o/{first_offset:016x}"


class Accepted(msgspec.Struct, frozen=True, array_like=True):
    """How one batch of a flush was decided: its base offset, or -1 and the refusal's name."""

    base_offset: int
    refusal: str = ""


class SessionMark(msgspec.Struct, frozen=True, array_like=True):
    """The last flush of a broker session that was committed to this partition.

    `generation` is that flush's WAL generation: the mark may go only when the fence is above it.
    """

    flush: int
    generation: int
    base_offset: int
    batches: tuple[Accepted, ...]


class Head(msgspec.Struct, frozen=True, array_like=True):
    """Invariant: 0 <= log_start <= frontier <= next_offset, except that DeleteRecords may move
    log_start past the frontier. None of the four ever falls, nor does `expired_producers`.

    `first_open`: the first offset of the oldest open transaction. None: none is open.
    `expired_producers`: the highest producer id whose row expired here. -1: none ever did.
    """

    stored_format: ClassVar[int] = 3

    next_offset: int = 0
    log_start: int = 0
    frontier: int = 0
    fence: int = 0
    sessions: dict[str, SessionMark] = {}
    first_open: int | None = None
    expired_producers: int = -1


def last_stable_offset(head: Head) -> int:
    """Below it every transaction has ended, but for those of which nothing is left."""
    if head.first_open is None:
        return head.next_offset
    return max(head.log_start, min(head.first_open, head.next_offset))


DATA_EXTENT: Final = 0
MARKER_EXTENT: Final = 1
"""The control batch that ends a transaction, inline."""


class OpenTransaction(msgspec.Struct, frozen=True, array_like=True):
    """It has records in the partition, from `first_offset` on, and no marker yet. `since_ms` is by the clock of the
    broker that appended the first of them."""

    transactional_id: str
    number: int
    producer_id: int
    epoch: int
    first_offset: int
    since_ms: int


class OpenHere(msgspec.Struct, frozen=True, array_like=True):
    """The transaction that a producer has open in the partition."""

    number: int
    first_offset: int


class Marker(msgspec.Struct, frozen=True, array_like=True):
    """How a transaction ended. [first_offset, end_offset) holds all it has in the partition, beside what others have;
    None: it has nothing there. `partitions`: all that it enlisted of the topic, by their indexes, in order."""

    transactional_id: str
    number: int
    producer_id: int
    epoch: int
    committed: bool
    first_offset: int | None
    end_offset: int | None
    partitions: tuple[int, ...]
    coordinator_epoch: int


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """[base_offset, end_offset) is at `position`, `length` of an object. Offsets in the stored batches
    are relative: readers number them from base_offset. `checksum` is CRC32C of those bytes. A marker has its bytes
    `inline` and is in no object."""

    stored_format: ClassVar[int] = 4

    base_offset: int
    end_offset: int
    stores: tuple[str, ...]
    object_key: str
    position: int
    length: int
    max_timestamp_ms: int
    checksum: int
    inline: bytes = b""
    kind: int = DATA_EXTENT
    marker: Marker | None = None


class ProducerRun(msgspec.Struct, frozen=True, array_like=True):
    """Batches whose sequences and offsets both follow on each other: sequence `first_sequence + n` is at offset
    `base_offset + n`."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp_ms: int


class ProducerState(msgspec.Struct, frozen=True, array_like=True):
    """What one idempotent producer appended in its newest epoch: every sequence from `lowest_sequence` to that of the
    last run. `runs` (oldest first) says at which offsets the newest of them are; it is empty while nothing was appended
    in an epoch that was closed, or that began with the end of a transaction.

    `last_append_ms` is by the clock of the broker that appended. -1: not known, the row was written before it was kept.
    `closed`: the refusal that every further batch of the epoch gets. Empty: the epoch is open.
    `open`: the transaction that it has open here. `ended`: the highest number of one that ended here, and
    `coordinator_epoch` that of its marker. -1: none did.
    """

    stored_format: ClassVar[int] = 4

    epoch: int
    runs: tuple[ProducerRun, ...]
    lowest_sequence: int
    last_append_ms: int
    closed: str = ""
    open: OpenHere | None = None
    ended: int = NO_NUMBER
    coordinator_epoch: int = -1
