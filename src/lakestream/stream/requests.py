"""What callers request of streams, in their own words: a topic by its name or by its id."""

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from lakestream.metadata.log.enlistment import InTransaction
from lakestream.objects import Buffer

TopicKey = str | UUID | None
"""None is the zero id, which no topic has."""


class ProducedBatch(NamedTuple):
    """One partition's record batch, which must not change afterwards. `transaction`: to which it says it belongs."""

    topic: TopicKey
    partition: int
    run: Buffer
    transaction: InTransaction | None = None


class KnownProducer(NamedTuple):
    """An idempotent producer in its newest epoch. -1: it has appended nothing in it, has no transaction open, or none
    that ended."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    open_offset: int = -1
    """Where the transaction begins that it has open."""
    coordinator_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """`takes_zstd`: whether the caller can read what a topic of zstd is served as. `committed`: only what is committed
    is wanted: nothing beyond the last stable offset, and what was aborted is named."""

    topic: TopicKey
    partition: int
    offset: int
    max_bytes: int
    takes_zstd: bool = True
    committed: bool = False


@dataclass(frozen=True, slots=True)
class OffsetQuery:
    """`timestamp_ms`: EARLIEST, LATEST, MAX_TIMESTAMP, or the first record at or after that time. `committed`: below
    the last stable offset."""

    topic: TopicKey
    partition: int
    timestamp_ms: int
    committed: bool = False


@dataclass(frozen=True, slots=True)
class RecordsDelete:
    """Everything below the offset; None: all there is."""

    topic: TopicKey
    partition: int
    offset: int | None
