"""OffsetFetch, v1–v10.

A group's committed offsets, read from the store; -1 where there is none, which is no error. v1–v7 ask for one group,
later versions for many. Null topics (v2+) mean all that are committed; those of deleted topics are left out.
v10 names topics by id. require_stable makes no difference: there are no transactions whose offsets could be pending.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import LakestreamError
from lakestream.kafka.apis import lookup
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import coordinator_code
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.groups import CommittedOffset
from lakestream.model import StreamPartition

_Offsets = Mapping[StreamPartition, CommittedOffset]


async def handle(context: Context, request: Any) -> Reply:
    if context.version < 8:
        return await _group(context, request.group_id, request.topics)
    return {"groups": [await _group(context, asked.group_id, asked.topics) for asked in request.groups]}


async def _group(context: Context, group: str, topics: Sequence[Any] | None) -> Fields:
    try:
        offsets = await context.groups.offsets(group)
        described = await (_all(context, offsets) if topics is None else _asked(context, offsets, topics))
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


async def _asked(context: Context, offsets: _Offsets, topics: Sequence[Any]) -> list[Fields]:
    found = await lookup.find_now(context.streams, [lookup.key_of(topic) for topic in topics])
    described: list[Fields] = []
    for topic in topics:
        key = lookup.key_of(topic)
        known = found.get(key)
        absent_by_name = isinstance(key, str) and key not in found.damaged
        missing = ErrorCode.none if known is not None or absent_by_name else found.refusal(key)
        partitions = []
        for index in topic.partition_indexes:
            partition = lookup.partition_of(known, index)
            offset = None if partition is None else offsets.get(partition)
            partitions.append(_none(index, missing) if offset is None else _some(index, offset))
        described.append({**lookup.named(key), "partitions": partitions})
    return described


async def _all(context: Context, offsets: _Offsets) -> list[Fields]:
    by_topic: dict[lookup.TopicKey, list[Fields]] = {}
    for partition, offset in offsets.items():
        by_topic.setdefault(partition.topic_id, []).append(_some(partition.index, offset))
    found = await lookup.find_now(context.streams, by_topic)
    for damage in found.damaged.values():
        raise damage
    return [
        {"name": found[key].name, "topic_id": key, "partitions": partitions}
        for key, partitions in by_topic.items()
        if key in found
    ]


def _some(index: int, offset: CommittedOffset) -> Fields:
    return {
        "partition_index": index,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
    }


def _none(index: int, code: ErrorCode) -> Fields:
    return {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code}


API = api(9, handle)
