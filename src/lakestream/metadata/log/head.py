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


DATA_EXTENT: Final = 0
MARKER_EXTENT: Final = 1
"""The control batch that ends a transaction, inline."""


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """[base_offset, end_offset) is at `position`, `length` of an object. Offsets in the stored batches
    are relative: readers number them from base_offset. `checksum` is CRC32C of those bytes."""

    stored_format: ClassVar[int] = 3

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


class ProducerRun(msgspec.Struct, frozen=True, array_like=True):
    """Batches whose sequences and offsets both follow on each other: sequence `first_sequence + n` is at offset
    `base_offset + n`."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp_ms: int


class ProducerState(msgspec.Struct, frozen=True, array_like=True):
    """What one idempotent producer appended in its newest epoch: every sequence from `lowest_sequence` to that of the
    last run. `runs` (oldest first) says at which offsets the newest of them are; it is empty only in a closed epoch
    in which nothing was appended.

    `last_append_ms` is by the clock of the broker that appended. -1: not known, the row was written before it was kept.
    `closed`: the refusal that every further batch of the epoch gets. Empty: the epoch is open.
    """

    stored_format: ClassVar[int] = 3

    epoch: int
    runs: tuple[ProducerRun, ...]
    lowest_sequence: int
    last_append_ms: int
    closed: str = ""

    @classmethod
    def upgrade(cls, body: bytes) -> "ProducerState":
        """Format 2 did not say with which sequence the epoch began, and let it begin anywhere: only the batches that it
        names are known to be in the log."""
        old = msgspec.msgpack.decode(body, type=_ProducerState2)
        if not old.batches:
            raise msgspec.ValidationError("a producer's state without a batch")
        return cls(old.epoch, old.batches, old.batches[0].first_sequence, -1)


class _ProducerState2(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    batches: tuple[ProducerRun, ...]
