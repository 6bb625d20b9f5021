"""TxnOffsetCommit, v0–v5.

A group's offsets, pending until the producer's transaction ends: then they are the group's, or gone. Asked of the
group's coordinator. A member commits in its own generation (v3+); who names neither member nor generation is taken.
The group has to be in the transaction: by AddOffsetsToTxn, or from v5 on by this request itself.
"""

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.transactions import Producer
from lakestream.errors import ConcurrentTransactions, InvalidTransactionState, LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of, group_code, transaction_code
from lakestream.metadata.groups import CommittedOffset
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition

_KNOWS_ABORTABLE: Final = 4
_IMPLICIT: Final = 5

_Place = tuple[str, int]


async def handle(context: Context, request: Any) -> Reply:
    codes: dict[_Place, ErrorCode] = {}
    outcome = ErrorCode.none
    try:
        context.transactions.check(context.principal, request.transactional_id)
        context.groups.check(context.principal, Operation.READ, request.group_id)
        offsets = await _offsets(context, request, codes)
        if offsets:
            outcome = await _commit(context, request, offsets)
    except LakestreamError as error:
        outcome = _code(context, error)
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": asked.partition_index,
                        "error_code": codes.get((topic.name, asked.partition_index), outcome),
                    }
                    for asked in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


async def _commit(context: Context, request: Any, offsets: Mapping[StreamPartition, CommittedOffset]) -> ErrorCode:
    find = context.transactions.offsets(
        context.principal,
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        request.group_id,
        offsets,
        implicit=context.version >= _IMPLICIT,
    )
    told = await context.groups.commit_in_transaction(
        context.principal,
        request.group_id,
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
        find,
    )
    return group_code(told)


async def _offsets(
    context: Context, request: Any, refused: dict[_Place, ErrorCode]
) -> dict[StreamPartition, CommittedOffset]:
    names = [topic.name for topic in request.topics]
    found = await context.streams.find(context.principal, Operation.READ, names)
    now_ms = context.streams.cluster.now_ms()
    offsets: dict[StreamPartition, CommittedOffset] = {}
    for topic in request.topics:
        known = found[topic.name]
        for asked in topic.partitions:
            metadata, place = asked.committed_metadata or "", (topic.name, asked.partition_index)
            if not isinstance(known, Topic):
                refused[place] = code_of(known)
            elif not 0 <= asked.partition_index < known.partitions:
                refused[place] = ErrorCode.unknown_topic_or_partition
            elif len(metadata.encode()) > context.settings.groups.max_metadata_bytes:
                refused[place] = ErrorCode.offset_metadata_too_large
            else:
                offsets[StreamPartition(known.topic_id, asked.partition_index)] = CommittedOffset(
                    asked.committed_offset, getattr(asked, "committed_leader_epoch", -1), metadata, now_ms
                )
    return offsets


def _code(context: Context, error: LakestreamError) -> ErrorCode:
    """In words that each version's clients know what to do with."""
    if isinstance(error, ConcurrentTransactions) and context.version < _IMPLICIT:
        return ErrorCode.coordinator_load_in_progress
    if isinstance(error, InvalidTransactionState) and context.version >= _KNOWS_ABORTABLE:
        return ErrorCode.transaction_abortable
    return transaction_code(error, knows_fenced=False)


API = api(28, handle, versions=(0, 5))
