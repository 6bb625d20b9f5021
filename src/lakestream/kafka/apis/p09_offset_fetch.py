"""OffsetFetch, v1–v10.

A group's committed offsets, read from the store; -1 where there is none, which is no error. v1–v7 ask for one group,
later versions for many. Null topics (v2+) mean all that are committed; those of deleted topics are left out. From v9 on
a member of the newer protocol says which one it is, and in which epoch. v10 names topics by id. With require_stable
(v7+), UNSTABLE_OFFSET_COMMIT where a transaction that has not ended has an offset pending.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.groups import GroupError
from lakestream.errors import CorruptObject, LakestreamError, UnknownStream
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of, coordinator_code, group_code
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.groups import CommittedOffset
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.stream import TopicKey

_Offsets = Mapping[StreamPartition, CommittedOffset | None]
"""None: one is pending."""
_NOTHING = CommittedOffset(-1, -1, "", 0)


async def handle(context: Context, request: Any) -> Reply:
    if context.version < 8:
        stable = getattr(request, "require_stable", False)
        return await _group(context, request.group_id, request.topics, stable)
    says_member = context.version >= 9
    return {
        "groups": [
            await _group(context, asked.group_id, asked.topics, request.require_stable, asked if says_member else None)
            for asked in request.groups
        ]
    }


async def _group(
    context: Context, group: str, topics: Sequence[Any] | None, stable: bool, member: Any = None
) -> Fields:
    try:
        if member is not None:
            told = await context.groups.fetch_error(context.principal, group, member.member_id, member.member_epoch)
            if told is not GroupError.NONE:
                return _failed(context, group, topics or (), group_code(told))
        # First: what was pending before is in the offsets, then, or pending still.
        pending = await context.groups.pending(context.principal, group) if stable else frozenset()
        known = await context.groups.offsets(context.principal, group)
        offsets: _Offsets = {**known, **dict.fromkeys(pending)}
        described = await (_all(context, offsets) if topics is None else _requested(context, offsets, topics))
    except LakestreamError as error:
        return _failed(context, group, topics or (), coordinator_code(error))
    return {"group_id": group, "topics": described}


def _failed(context: Context, group: str, topics: Sequence[Any], code: ErrorCode) -> Fields:
    """v1 has no error of its own for the group: each partition carries it."""
    described = [
        {**lookup.named(lookup.key_of(topic)), "partitions": [_none(index, code) for index in topic.partition_indexes]}
        for topic in topics
    ]
    return {"group_id": group, "error_code": code, "topics": described if context.version < 2 else ()}


async def _requested(context: Context, offsets: _Offsets, topics: Sequence[Any]) -> list[Fields]:
    found = await context.streams.find(
        context.principal, Operation.DESCRIBE, [lookup.key_of(topic) for topic in topics]
    )
    described: list[Fields] = []
    for topic in topics:
        key = lookup.key_of(topic)
        known, code = found[key], ErrorCode.none
        # A name that no topic has is no error: nothing is committed there.
        if isinstance(known, LakestreamError) and not (isinstance(key, str) and isinstance(known, UnknownStream)):
            code = code_of(known)
        partitions = []
        for index in topic.partition_indexes:
            if isinstance(known, Topic):
                partitions.append(_some(index, offsets.get(StreamPartition(known.topic_id, index), _NOTHING)))
            else:
                partitions.append(_none(index, code))
        described.append({**lookup.named(key), "partitions": partitions})
    return described


async def _all(context: Context, offsets: _Offsets) -> list[Fields]:
    """Without those of topics that are gone, or that the caller may not describe."""
    by_topic: dict[TopicKey, list[Fields]] = {}
    for partition, offset in offsets.items():
        by_topic.setdefault(partition.topic_id, []).append(_some(partition.index, offset))
    found = await context.streams.find(context.principal, Operation.DESCRIBE, by_topic)
    for topic in found.values():
        if isinstance(topic, CorruptObject):
            raise topic
    return [
        {"name": topic.name, "topic_id": key, "partitions": by_topic[key]}
        for key, topic in found.items()
        if isinstance(topic, Topic)
    ]


def _some(index: int, offset: CommittedOffset | None) -> Fields:
    if offset is None:
        return _none(index, ErrorCode.unstable_offset_commit)
    return {
        "partition_index": index,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
    }


def _none(index: int, code: ErrorCode) -> Fields:
    return {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code}


API = api(9, handle, versions=(1, 10))
