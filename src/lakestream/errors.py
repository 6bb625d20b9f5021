"""Everything that can go wrong, in terms of what the caller should do.

LakestreamError
├── RequestError            fix the request; nothing was written
│   ├── NotAuthorized         the caller may not do that; it does not say whether the thing is there
│   ├── CorruptRecords        CRC, magic, lengths or counts do not hold
│   ├── InvalidRecords        well formed, yet not acceptable
│   │   ├── InvalidTimestamp    outside [-1, year 9999], or outside what the topic takes
│   │   └── UnknownSchema       ids of schemas that the topic's subjects are not known to have
│   ├── UnsupportedRecords    a magic or compression that is not served
│   │   └── UnsupportedCodec    a compression that this client does not know
│   ├── RecordsTooLarge       above the configured maximum
│   ├── UnknownStream         no such topic, topic id or partition
│   │   └── UnknownStreamId     no topic has that id
│   ├── StreamExists          a topic of that name is there already
│   ├── InvalidStream         a topic name or partition count that cannot be
│   │   ├── InvalidName         no name for a topic
│   │   ├── InvalidPartitions   a number of partitions that this topic cannot have
│   │   ├── InvalidAssignment   brokers that cannot be a partition's replicas
│   │   └── InvalidSetting      a topic's setting that cannot be
│   ├── InvalidSchema         no schema, or one whose values cannot be columns
│   ├── RecordsKept           records of a topic that is only compacted are not deleted by offset
│   ├── OffsetOutOfRange      below the log start or beyond the end
│   ├── SequenceGap           an idempotent producer skipped a sequence: its epoch is over
│   ├── UnknownProducer       an idempotent producer whose state expired: its epoch is over
│   ├── DuplicateSequence     a retry older than the batches that are remembered: it is in the log
│   ├── ProducerFenced        a newer epoch of this producer exists
│   ├── InvalidTransactionState  not in this transaction, or not in the state that it is in
│   │   └── TransactionAbortable    the same, and the producer can go on once it has aborted
│   ├── UnknownTransaction    no such transactional id, or it has another producer
│   ├── InvalidTransactionTimeout  not between 1 ms and the longest that the brokers allow
│   ├── UnknownTable          the catalog has no table of that name
│   ├── UnknownView           the catalog has no view of that name
│   ├── InvalidView           a definition of a view that cannot be
│   ├── TableExists           a table or view of that name is there already
│   ├── UnknownNamespace      the catalog has no such namespace
│   ├── NamespaceExists       that namespace is there already
│   ├── NamespaceNotEmpty     tables or namespaces are still inside
│   ├── TableRefused          a change that this table must never have
│   ├── QueryRefused          SQL that is not understood, or that asks for more than tables
│   ├── QueryLimit            a query that needs more memory, time or room than one may have
│   ├── CitationRefused       no citation of this cluster
│   ├── NoLongerThere         it was there, and is not any more
│   └── RegistryRefused       what the schema registry does not do, or does not have: `problem` says which of that
├── RetryableError          the same call may succeed later
│   ├── Unavailable           a store did not answer, or the outcome is unknown
│   │   ├── Throttled           the object store asks for fewer requests
│   │   ├── StoreRefused        no such bucket, or no right to it: somebody has to change something
│   │   └── RegistryUnavailable  the schema registry does not answer; nothing was written
│   ├── Overloaded            a memory budget is spent
│   ├── PredecessorAwaited    an earlier batch of this producer is not in the log yet
│   ├── NotVerified           whether the records may enter their transaction could not be learned
│   ├── ConcurrentTransactions  the producer's transaction before has not ended everywhere yet
│   └── Conflict              somebody else changed it first: load again and retry
├── NotCoordinator          another broker holds this group's lease
├── FencedError             this actor was replaced; it must stop or start anew
├── Unexpected              nobody foresaw it: a fault of ours; the log has its stack
└── StorageError            stored data is missing or damaged: an alarm, never a skip
    ├── ObjectMissing         no object under that name
    └── CorruptObject         a checksum or a format does not hold
"""

from collections.abc import Sequence
from enum import Enum


class LakestreamError(Exception):
    """Base of all. The message says what happened and what to do next."""


class RequestError(LakestreamError): ...


class NotAuthorized(RequestError):
    """`kind`: of the resource, in the words of `access.ResourceKind`."""

    def __init__(self, message: str, kind: str = "cluster") -> None:
        super().__init__(message)
        self.kind = kind


class CorruptRecords(RequestError): ...


class InvalidRecords(RequestError):
    """`records`: which records of the batch are to blame, by their place in it, and why; none: the batch as such."""

    def __init__(self, message: str, records: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.records = tuple(records)


class InvalidTimestamp(InvalidRecords): ...


class UnknownSchema(InvalidRecords):
    """`ids` are not known to be of the subject: whoever knows an old list of them looks again."""

    def __init__(
        self,
        message: str,
        records: Sequence[tuple[int, str]] = (),
        subject: str = "",
        ids: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(message, records)
        self.subject = subject
        self.ids = ids


class UnsupportedRecords(RequestError): ...


class UnsupportedCodec(UnsupportedRecords): ...


class RecordsTooLarge(RequestError): ...


class UnknownStream(RequestError): ...


class UnknownStreamId(UnknownStream): ...


class StreamExists(RequestError): ...


class InvalidStream(RequestError): ...


class InvalidName(InvalidStream): ...


class InvalidPartitions(InvalidStream): ...


class InvalidAssignment(InvalidStream): ...


class InvalidSetting(InvalidStream): ...


class InvalidSchema(RequestError): ...


class RecordsKept(RequestError): ...


class OffsetOutOfRange(RequestError): ...


class SequenceGap(RequestError): ...


class UnknownProducer(RequestError):
    """`log_start`: clients want to know where the log begins before they believe it."""

    def __init__(self, message: str, log_start: int = -1) -> None:
        super().__init__(message)
        self.log_start = log_start


class DuplicateSequence(RequestError): ...


class ProducerFenced(RequestError): ...


class InvalidTransactionState(RequestError): ...


class TransactionAbortable(InvalidTransactionState): ...


class UnknownTransaction(RequestError): ...


class InvalidTransactionTimeout(RequestError): ...


class UnknownTable(RequestError): ...


class UnknownView(RequestError): ...


class InvalidView(RequestError): ...


class TableExists(RequestError): ...


class UnknownNamespace(RequestError): ...


class NamespaceExists(RequestError): ...


class NamespaceNotEmpty(RequestError): ...


class TableRefused(RequestError): ...


class QueryRefused(RequestError): ...


class QueryLimit(RequestError): ...


class CitationRefused(RequestError): ...


class NoLongerThere(RequestError): ...


class RegistryProblem(Enum):
    """What is wrong with a request to the schema registry."""

    UNKNOWN_SUBJECT = "unknown subject"
    UNKNOWN_VERSION = "unknown version"
    UNKNOWN_SCHEMA = "unknown schema"
    SUBJECT_DELETED = "subject is deleted already"
    SUBJECT_NOT_DELETED = "subject is not deleted yet"
    VERSION_DELETED = "version is deleted already"
    VERSION_NOT_DELETED = "version is not deleted yet"
    NO_CONFIG = "subject has no compatibility of its own"
    NO_MODE = "subject has no mode of its own"
    INCOMPATIBLE = "incompatible schema"
    INVALID_SCHEMA = "invalid schema"
    INVALID_VERSION = "invalid version"
    INVALID_LEVEL = "invalid compatibility level"
    INVALID_MODE = "invalid mode"
    NOT_PERMITTED = "not permitted in this mode"
    REFERENCED = "other schemas refer to it"
    ID_DIFFERS = "the schema has another id"
    INVALID_SUBJECT = "invalid subject"
    TOO_LARGE = "schema too large"
    INVALID_RULES = "invalid rule set"


class RegistryRefused(RequestError):
    def __init__(self, problem: RegistryProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


class RetryableError(LakestreamError): ...


class Unavailable(RetryableError): ...


class Throttled(Unavailable): ...


class StoreRefused(Unavailable): ...


class RegistryUnavailable(Unavailable): ...


class Overloaded(RetryableError): ...


class PredecessorAwaited(RetryableError): ...


class NotVerified(RetryableError): ...


class ConcurrentTransactions(RetryableError): ...


class Conflict(RetryableError): ...


class NotCoordinator(LakestreamError): ...


class FencedError(LakestreamError): ...


class Unexpected(LakestreamError): ...


class StorageError(LakestreamError): ...


class ObjectMissing(StorageError): ...


class CorruptObject(StorageError): ...
