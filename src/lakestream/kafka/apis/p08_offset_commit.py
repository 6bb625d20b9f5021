"""OffsetCommit, v2–v10.

Keeps a group's offsets, one row per topic UUID and partition; answered when they are stored. Members commit in their
own generation; a group without members takes commits from anyone who claims no generation (-1).
Unknown topics, ids (v10) and partitions are refused one by one, and so is metadata above the limit.
retention_time (v2–v4) means nothing: offsets stay as long as the group has members, and `offsets.retention.minutes`
beyond that or, if that is later, beyond their commit.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import LakestreamError
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of, coordinator_code, group_code
from lakestream.metadata.groups import CommittedOffset
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.stream import FoundTopics, TopicKey


async def handle(context: Context, request: Any) -> Reply:
    refused: dict[tuple[TopicKey, int], ErrorCode] = {}

    async def find(now_ms: int) -> dict[StreamPartition, CommittedOffset]:
        keys = [lookup.key_of(topic) for topic in request.topics]
        topics = await context.streams.find(context.principal, Operation.READ, keys)
        return _offsets(context, request, topics, refused, now_ms)

    try:
        told = await context.groups.commit(
            context.principal,
            request.group_id,
            request.member_id,
            getattr(request, "group_instance_id", None),
            request.generation_id_or_member_epoch,
            find,
        )
        outcome = group_code(told)
    except LakestreamError as error:
        outcome = coordinator_code(error)
    return {
        "topics": [
            {
                **lookup.named(key := lookup.key_of(topic)),
                "partitions": [
                    {
                        "partition_index": asked.partition_index,
                        "error_code": refused.get((key, asked.partition_index), outcome),
                    }
                    for asked in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _offsets(
    context: Context,
    request: Any,
    topics: FoundTopics,
    refused: dict[tuple[TopicKey, int], ErrorCode],
    now_ms: int,
) -> dict[StreamPartition, CommittedOffset]:
    """What is to be stored; what is not is `refused`."""
    offsets: dict[StreamPartition, CommittedOffset] = {}
    for topic in request.topics:
        key = lookup.key_of(topic)
        for asked in topic.partitions:
            partition = _checked(context, topics[key], asked)
            if isinstance(partition, ErrorCode):
                refused[key, asked.partition_index] = partition
            else:
                offsets[partition] = CommittedOffset(
                    asked.committed_offset,
                    getattr(asked, "committed_leader_epoch", -1),
                    asked.committed_metadata or "",
                    now_ms,
                )
    return offsets


def _checked(context: Context, topic: Topic | LakestreamError, asked: Any) -> StreamPartition | ErrorCode:
    if isinstance(topic, LakestreamError):
        return code_of(topic)
    if not 0 <= asked.partition_index < topic.partitions:
        return ErrorCode.unknown_topic_or_partition
    if len((asked.committed_metadata or "").encode()) > context.settings.groups.max_metadata_bytes:
        return ErrorCode.offset_metadata_too_large
    return StreamPartition(topic.topic_id, asked.partition_index)


API = api(8, handle, versions=(2, 10))
