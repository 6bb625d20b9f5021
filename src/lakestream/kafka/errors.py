"""The one place where our errors become Kafka's codes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.access import ResourceKind
from lakestream.coordination.groups import GroupError
from lakestream.errors import (
    ConcurrentTransactions,
    Conflict,
    CorruptObject,
    CorruptRecords,
    DuplicateSequence,
    FencedError,
    InvalidAssignment,
    InvalidName,
    InvalidPartitions,
    InvalidRecords,
    InvalidSetting,
    InvalidStream,
    InvalidTimestamp,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    LakestreamError,
    NotAuthorized,
    NotCoordinator,
    NotVerified,
    OffsetOutOfRange,
    Overloaded,
    PredecessorAwaited,
    ProducerFenced,
    RecordsKept,
    RecordsTooLarge,
    RegistryUnavailable,
    RequestError,
    RetryableError,
    SequenceGap,
    StorageError,
    StreamExists,
    TransactionAbortable,
    Unavailable,
    Unexpected,
    UnknownProducer,
    UnknownStream,
    UnknownStreamId,
    UnknownTransaction,
    UnsupportedCodec,
    UnsupportedRecords,
)

_CODES: dict[type[BaseException], ErrorCode] = {
    CorruptRecords: ErrorCode.corrupt_message,
    InvalidTimestamp: ErrorCode.invalid_timestamp,
    InvalidRecords: ErrorCode.invalid_record,
    # What Kafka answers to magic 0 and 1, which is nearly all of it.
    UnsupportedRecords: ErrorCode.invalid_record,
    UnsupportedCodec: ErrorCode.unsupported_compression_type,
    RecordsTooLarge: ErrorCode.message_too_large,
    UnknownStream: ErrorCode.unknown_topic_or_partition,
    UnknownStreamId: ErrorCode.unknown_topic_id,
    StreamExists: ErrorCode.topic_already_exists,
    InvalidStream: ErrorCode.invalid_request,
    InvalidName: ErrorCode.invalid_topic_exception,
    InvalidPartitions: ErrorCode.invalid_partitions,
    InvalidAssignment: ErrorCode.invalid_replica_assignment,
    InvalidSetting: ErrorCode.invalid_config,
    RecordsKept: ErrorCode.policy_violation,
    OffsetOutOfRange: ErrorCode.offset_out_of_range,
    SequenceGap: ErrorCode.out_of_order_sequence_number,
    UnknownProducer: ErrorCode.unknown_producer_id,
    DuplicateSequence: ErrorCode.duplicate_sequence_number,
    ProducerFenced: ErrorCode.invalid_producer_epoch,
    InvalidTransactionState: ErrorCode.invalid_txn_state,
    TransactionAbortable: ErrorCode.transaction_abortable,
    InvalidTransactionTimeout: ErrorCode.invalid_transaction_timeout,
    UnknownTransaction: ErrorCode.invalid_producer_id_mapping,
    ConcurrentTransactions: ErrorCode.concurrent_transactions,
    RequestError: ErrorCode.invalid_request,
    # Nothing was written and the client should come back: every producer retries this code.
    Overloaded: ErrorCode.not_enough_replicas,
    RegistryUnavailable: ErrorCode.not_enough_replicas,
    NotVerified: ErrorCode.not_enough_replicas,
    # Every client sends such batches again in their order and in the same epoch, and counts no retry.
    PredecessorAwaited: ErrorCode.not_leader_or_follower,
    Conflict: ErrorCode.request_timed_out,
    Unavailable: ErrorCode.request_timed_out,
    RetryableError: ErrorCode.request_timed_out,
    NotCoordinator: ErrorCode.not_coordinator,
    FencedError: ErrorCode.not_leader_or_follower,
    # Not kafka_storage_error: clients retry that in silence, and damage does not go away.
    CorruptObject: ErrorCode.corrupt_message,
    StorageError: ErrorCode.kafka_storage_error,
    Unexpected: ErrorCode.kafka_storage_error,
    LakestreamError: ErrorCode.unknown_server_error,
}

_DENIALS: Final = {
    ResourceKind.TOPIC.value: ErrorCode.topic_authorization_failed,
    ResourceKind.GROUP.value: ErrorCode.group_authorization_failed,
    ResourceKind.CLUSTER.value: ErrorCode.cluster_authorization_failed,
    ResourceKind.TRANSACTIONAL_ID.value: ErrorCode.transactional_id_authorization_failed,
    # Kafka knows no subjects: what is denied of them is a setting of the cluster's.
    ResourceKind.SUBJECT.value: ErrorCode.cluster_authorization_failed,
}

_GROUP_CODES: Final = {
    GroupError.NONE: ErrorCode.none,
    GroupError.UNKNOWN_MEMBER: ErrorCode.unknown_member_id,
    GroupError.STALE_GENERATION: ErrorCode.illegal_generation,
    GroupError.REBALANCING: ErrorCode.rebalance_in_progress,
    GroupError.MEMBER_ID_REQUIRED: ErrorCode.member_id_required,
    GroupError.FENCED_INSTANCE: ErrorCode.fenced_instance_id,
    GroupError.INCONSISTENT_PROTOCOL: ErrorCode.inconsistent_group_protocol,
    GroupError.GROUP_FULL: ErrorCode.group_max_size_reached,
    GroupError.NOT_COORDINATOR: ErrorCode.not_coordinator,
    GroupError.INVALID_NAME: ErrorCode.invalid_group_id,
    GroupError.INVALID_SESSION_TIMEOUT: ErrorCode.invalid_session_timeout,
    GroupError.UNKNOWN_GROUP: ErrorCode.group_id_not_found,
    GroupError.NOT_EMPTY: ErrorCode.non_empty_group,
    GroupError.INVALID_REQUEST: ErrorCode.invalid_request,
    GroupError.FENCED_EPOCH: ErrorCode.fenced_member_epoch,
    GroupError.STALE_EPOCH: ErrorCode.stale_member_epoch,
    GroupError.UNRELEASED_INSTANCE: ErrorCode.unreleased_instance_id,
    GroupError.UNKNOWN_ASSIGNOR: ErrorCode.unsupported_assignor,
    GroupError.INVALID_PATTERN: ErrorCode.invalid_regular_expression,
}

NO_AUTHORIZER: Final = "clients are not asked who they are, so there are no ACLs: everybody may do everything"
NO_QUORUM: Final = "brokers share one metadata store: there is no quorum to change"


class MalformedRequest(Exception):
    """The bytes are not the request they claim to be: the connection is closed, as Kafka does."""


def code_of(error: LakestreamError) -> ErrorCode:
    """The wire code of the error's nearest known ancestor."""
    if isinstance(error, NotAuthorized):
        return _DENIALS[error.kind]
    for kind in type(error).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    return ErrorCode.unknown_server_error


def fetch_code(error: LakestreamError) -> ErrorCode:
    """The same, for a Fetch: of a store out of reach a consumer must hear in words that it expects there. These make it
    look for another broker in silence; a time-out ends Java's consumer, and librdkafka hands it to the application."""
    if isinstance(error, RetryableError):
        return ErrorCode.not_leader_or_follower
    return code_of(error)


def coordinator_code(error: LakestreamError) -> ErrorCode:
    """The same, for requests to a group's coordinator: a store out of reach is the coordinator's absence."""
    if isinstance(error, RetryableError):
        return ErrorCode.coordinator_not_available
    return code_of(error)


def transaction_code(error: LakestreamError, *, knows_fenced: bool = True) -> ErrorCode:
    """The same, for requests about transactions. Older clients know a producer that was fenced by another code."""
    if isinstance(error, ProducerFenced) and knows_fenced:
        return ErrorCode.producer_fenced
    if isinstance(error, ConcurrentTransactions):
        return ErrorCode.concurrent_transactions
    return coordinator_code(error)


def group_code(error: GroupError) -> ErrorCode:
    return _GROUP_CODES[error]


def refusals(fields: Mapping[str, Any], depth: int = 2) -> Iterator[str]:
    """The error codes in an answer: its own, and those of topics, groups and partitions, which lie two lists deep at
    the most. What went well has no code, the code of no error, or is bytes already."""
    code = fields.get("error_code")
    if code:
        yield ErrorCode(code).name
    if depth:
        for value in fields.values():
            if isinstance(value, list | tuple) and value and isinstance(value[0], dict | bytes):
                for each in value:
                    if isinstance(each, dict):
                        yield from refusals(each, depth - 1)
