"""One flush: what was buffered for many partitions, laid out as one WAL object."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lakestream.errors import (
    ConcurrentTransactions,
    DuplicateSequence,
    InvalidTransactionState,
    LakestreamError,
    NotVerified,
    PredecessorAwaited,
    ProducerFenced,
    SequenceGap,
    TransactionAbortable,
    UnknownProducer,
    UnknownTransaction,
)
from lakestream.metadata.log.commit import (
    AWAITED,
    DUPLICATE,
    FENCED,
    SEQUENCE_GAP,
    TRANSACTION_OPEN,
    UNKNOWN_PRODUCER,
    Batch,
    Offer,
    batch_at,
)
from lakestream.metadata.log.enlistment import (
    CONCURRENT,
    NOT_ENLISTED,
    NOT_VERIFIED,
    STALE_EPOCH,
    UNKNOWN_TRANSACTION,
    InTransaction,
)
from lakestream.metadata.log.head import Accepted
from lakestream.model import StreamPartition
from lakestream.objects.store import Buffer
from lakestream.records import BatchInfo, crc32c
from lakestream.records.layout import APPEND_TIME_BIT
from lakestream.wal import BuiltObject, Section, Span

_NEWER_EPOCH: Final = ProducerFenced, "a newer epoch of this producer id has written: start a new producer"
_REFUSALS: Final[dict[str, tuple[type[LakestreamError], str]]] = {
    FENCED: _NEWER_EPOCH,
    STALE_EPOCH: _NEWER_EPOCH,
    DUPLICATE: (
        DuplicateSequence,
        "these records were appended before; their offset is not remembered any more",
    ),
    AWAITED: (
        PredecessorAwaited,
        "an earlier batch of this producer is not in the log yet: send both again, in order",
    ),
    SEQUENCE_GAP: (
        SequenceGap,
        "an earlier batch of this producer never came: start a new producer, or bump its epoch",
    ),
    TRANSACTION_OPEN: (
        InvalidTransactionState,
        "the producer has a transaction open in this partition: end it first, or write in it",
    ),
    NOT_ENLISTED: (
        TransactionAbortable,
        "the partition is not in an open transaction of this producer: abort, and begin another",
    ),
    CONCURRENT: (
        ConcurrentTransactions,
        "the producer's transaction before this one is still being ended: send the records again",
    ),
    NOT_VERIFIED: (
        NotVerified,
        "whether the partition is in the transaction could not be learned: send the records again",
    ),
    UNKNOWN_TRANSACTION: (
        UnknownTransaction,
        "the transactional id is not known, or has another producer: start a new producer",
    ),
}


@dataclass(frozen=True, slots=True)
class Appended:
    """The first offset the records were given, and where the log starts. `append_time_ms`: the broker's time, if they
    have that. `is_duplicate`: they were in the log already, since an earlier time."""

    base_offset: int
    log_start: int
    append_time_ms: int | None = None
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """One call's records for one partition, and who waits for them."""

    partition: StreamPartition
    run: Buffer
    batches: Sequence[BatchInfo]
    done: "asyncio.Future[Appended]"
    transaction: InTransaction | None = None

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def settle(self, results: Sequence[Accepted], log_start: int) -> None:
        """A call is answered as a whole: the first refused batch is its error."""
        if self.done.done():
            return
        for result in results:
            error = refusal_error(result, log_start)
            if error is not None:
                self.done.set_exception(error)
                return
        first, batch = results[0], self.batches[0]
        append_time_ms = batch.max_timestamp_ms if batch.attributes & APPEND_TIME_BIT else None
        self.done.set_result(Appended(first.base_offset, log_start, append_time_ms, first.refusal == DUPLICATE))


@dataclass(slots=True)
class Flush:
    """Appends by partition, in the order in which they came, and CRC32C of each partition's bytes: taken as they come,
    while they are still in the processor's cache."""

    appends: dict[StreamPartition, list[Append]] = field(default_factory=dict)
    checksums: dict[StreamPartition, int] = field(default_factory=dict)
    size_bytes: int = 0
    count: int = 0

    def add(self, append: Append) -> None:
        partition = append.partition
        self.appends.setdefault(partition, []).append(append)
        self.checksums[partition] = crc32c(append.run, self.checksums.get(partition, 0))
        self.size_bytes += len(append.run)
        self.count += 1

    def only(self, partitions: Sequence[StreamPartition]) -> "Flush":
        part = Flush()
        for partition in partitions:
            for append in self.appends[partition]:
                part.add(append)
        return part

    def fail(self, error: BaseException) -> None:
        for appends in self.appends.values():
            for append in appends:
                append.fail(error)

    def sections(self) -> list[Section]:
        return [
            Section(
                partition=partition,
                parts=[append.run for append in appends],
                record_count=sum(batch.record_count for append in appends for batch in append.batches),
                max_timestamp_ms=max(batch.max_timestamp_ms for append in appends for batch in append.batches),
                checksum=self.checksums[partition],
            )
            for partition, appends in sorted(self.appends.items())
        ]


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A flush whose object is durable, in these stores. Nothing of it is in the log before its commit."""

    flush: Flush
    number: int
    generation: int
    session: str
    object_key: str
    built: BuiltObject
    stores: tuple[str, ...]

    def offers(self, time_ms: int) -> list[Offer]:
        return [self._offer(span, time_ms) for span in self.built.spans]

    def _offer(self, span: Span, time_ms: int) -> Offer:
        appends = self.flush.appends[span.partition]

        def checksum(start: int, end: int) -> int:
            if (start, end) == (0, span.length):
                return span.checksum
            return crc32c(b"".join(append.run for append in appends)[start:end])

        return Offer(
            partition=span.partition,
            session=self.session,
            flush=self.number,
            generation=self.generation,
            stores=self.stores,
            object_key=self.object_key,
            position=span.position,
            batches=_laid_out(appends),
            checksum=checksum,
            time_ms=time_ms,
        )


def _laid_out(appends: Sequence[Append]) -> list[Batch]:
    batches: list[Batch] = []
    start = 0
    for append in appends:
        batches += [batch_at(info, start, append.transaction) for info in append.batches]
        start += len(append.run)
    return batches


def refusal_error(result: Accepted, log_start: int) -> LakestreamError | None:
    """A remembered duplicate has its original offset and is no error."""
    if result.base_offset >= 0:
        return None
    if result.refusal == UNKNOWN_PRODUCER:
        return UnknownProducer(
            "this producer wrote nothing for so long that its state expired: bump its epoch", log_start
        )
    kind, message = _REFUSALS[result.refusal]
    return kind(message)
