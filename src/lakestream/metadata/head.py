"""Head, extents and producer states of one partition: what is stored, and under which keys.

All rows of a partition are in one shard and guarded by the head's version: whoever
changes any of them checks and rewrites the head in the same transaction.
"""

from functools import lru_cache
from typing import Final
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
    log_start past the frontier. None of the four ever falls."""

    next_offset: int = 0
    log_start: int = 0
    frontier: int = 0
    fence: int = 0
    sessions: dict[str, SessionMark] = {}


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """[base_offset, end_offset) is at `position`, `length` of an object. Offsets in the stored batches
    are relative: readers number them from base_offset. `checksum` is CRC32C of those bytes."""

    base_offset: int
    end_offset: int
    stores: tuple[str, ...]
    object_key: str
    position: int
    length: int
    max_timestamp_ms: int
    checksum: int
    inline: bytes = b""


class ProducerBatch(msgspec.Struct, frozen=True, array_like=True):
    first_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp_ms: int


class ProducerState(msgspec.Struct, frozen=True, array_like=True):
    """The last batches (five at most, oldest first) of one idempotent producer."""

    epoch: int
    batches: tuple[ProducerBatch, ...]
