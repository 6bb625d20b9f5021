"""CreateTopics, v2–v7.

The answer comes when the topic can be used. num_partitions -1 takes the default. The replication factor is
accepted, -1 or at least 1, and reported as 1: copies are the object store's. A manual assignment is checked as
Kafka does, and counts only by its partitions, which must be 0, 1, 2, … without gaps. What is no setting of a topic, or
cannot be, is INVALID_CONFIG, with a sentence. validate_only checks everything and creates nothing.
v5+ returns the settings, v7 the id.
"""

import asyncio
from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.errors import InvalidAssignment, InvalidSetting, LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import check_name
from lakestream.stream.configs import topic_configs


class _Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


async def handle(context: Context, request: Any) -> Reply:
    times = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        if times[topic.name] > 1:
            results.append(_failed(topic.name, ErrorCode.invalid_request, "the topic is named twice"))
        else:
            results.append(_create(context, topic, validate_only=request.validate_only))
    return {"topics": await asyncio.gather(*results)}


async def _failed(name: str, code: ErrorCode, message: str) -> Fields:
    """As in Kafka, whose clients do not take null for what there is not."""
    return {"name": name, "error_code": code, "error_message": message, "topic_id": None, "configs": ()}


async def _create(context: Context, asked: Any, *, validate_only: bool) -> Fields:
    topics = context.streams.topics
    try:
        check_name(asked.name)
        partitions = await _partitions(context, asked)
        configs = _configs(asked)
        topic_id = None
        if not validate_only:
            topic_id = (await topics.create(context.principal, asked.name, partitions, configs)).topic_id
        else:
            await topics.check_new(context.principal, asked.name, partitions, configs)
    except (_Refused, InvalidAssignment, InvalidSetting) as refused:
        return await _refuse(context, asked, refused)
    except LakestreamError as error:
        return await _failed(asked.name, code_of(error), str(error))
    return {
        "name": asked.name,
        "error_message": None,
        "topic_id": topic_id,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [
            {
                "name": config.name,
                "value": config.value,
                "read_only": config.read_only,
                "config_source": config.source,
                "is_sensitive": False,
            }
            for config in topic_configs(configs, topics.max_batch_bytes)
        ],
    }


async def _refuse(context: Context, asked: Any, refused: _Refused | InvalidAssignment | InvalidSetting) -> Fields:
    """As in Kafka, in this order: the topic is there, its settings cannot be, its partitions cannot."""
    code = refused.code if isinstance(refused, _Refused) else code_of(refused)
    given = {config.name: config.value for config in asked.configs if config.value is not None}
    is_whole = all(config.value is not None for config in asked.configs)
    try:
        for configs in ({}, given) if is_whole else ({},):
            await context.streams.topics.check_new(context.principal, asked.name, 1, configs)
        if code is not ErrorCode.invalid_config:
            _configs(asked)
    except LakestreamError as error:
        return await _failed(asked.name, code_of(error), str(error))
    except _Refused as earlier:
        return await _failed(asked.name, earlier.code, str(earlier))
    return await _failed(asked.name, code, str(refused))


async def _partitions(context: Context, asked: Any) -> int:
    """How many partitions the topic will have. Raises `_Refused`, `InvalidAssignment`."""
    if asked.assignments:
        if asked.num_partitions != -1 or asked.replication_factor != -1:
            raise _Refused(ErrorCode.invalid_request, "give either an assignment or the numbers, not both")
        indexes = sorted(assignment.partition_index for assignment in asked.assignments)
        if indexes != list(range(len(indexes))):
            raise _Refused(ErrorCode.invalid_replica_assignment, "assign partitions 0, 1, 2, … without gaps, each once")
        assignments = [each.broker_ids for each in asked.assignments]
        await context.streams.topics.check_assignments(context.principal, assignments, len(indexes))
        return len(indexes)
    if asked.replication_factor != -1 and asked.replication_factor < 1:
        raise _Refused(ErrorCode.invalid_replication_factor, "the replication factor must be -1 or at least 1")
    partitions: int = asked.num_partitions
    if partitions == -1:
        partitions = max(context.settings.num_partitions, 1)
    if not 1 <= partitions <= context.settings.max_partitions:
        raise _Refused(
            ErrorCode.invalid_partitions, f"choose 1 to {context.settings.max_partitions} partitions, not {partitions}"
        )
    return partitions


def _configs(asked: Any) -> dict[str, str]:
    """Of a setting that is named twice the last value counts, as in Kafka."""
    if any(config.value is None for config in asked.configs):
        raise _Refused(ErrorCode.invalid_config, "each setting needs a value")
    return {config.name: config.value for config in asked.configs}


API = api(19, handle, versions=(2, 7))
