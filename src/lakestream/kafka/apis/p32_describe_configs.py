"""DescribeConfigs, v1–v4.

The settings of topics, of this broker (an empty name is the cluster-wide default, of which there is none), of this
broker's loggers, of subscriptions to clients' metrics (Kafka's defaults: none is received) and of groups (those of
the newer protocol).
Anything else makes the whole request INVALID_REQUEST, as in Kafka. Keys that are asked for by name are filtered.
Synonyms name where a value comes from, by the broker's name for it; types and documentation from v3 on.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import LakestreamError, RequestError, UnknownStream
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.configs import (
    Resource,
    broker_configs,
    client_metrics_configs,
    group_configs,
    logger_configs,
)
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import check_name
from lakestream.stream import FoundTopics
from lakestream.stream.configs import Config, topic_configs


async def handle(context: Context, request: Any) -> Reply:
    names = [asked.resource_name for asked in request.resources if asked.resource_type == Resource.TOPIC]
    topics = await context.streams.find(context.principal, Operation.DESCRIBE_CONFIGS, names)
    is_known = all(asked.resource_type in Resource.ALL for asked in request.resources)
    results = []
    for asked in request.resources:
        configs: list[Config] = []
        code, message = ErrorCode.none, None
        try:
            if not is_known:
                raise RequestError("topics, brokers, brokers' loggers, metrics of clients and groups have settings")
            if asked.resource_type == Resource.GROUP:
                configs = await _of_group(context, asked.resource_name)
            else:
                configs = _configs(context, asked.resource_type, asked.resource_name, topics)
        except LakestreamError as error:
            code, message = code_of(error), str(error)
        keys = None if asked.configuration_keys is None else set(asked.configuration_keys)
        results.append(
            {
                "error_code": code,
                "error_message": message,
                "resource_type": asked.resource_type,
                "resource_name": asked.resource_name,
                "configs": [_fields(config, request) for config in configs if not keys or config.name in keys],
            }
        )
    return {"results": results}


def _configs(context: Context, kind: int, name: str, topics: FoundTopics) -> list[Config]:
    cluster = context.streams.cluster
    match kind:
        case Resource.TOPIC:
            topic = topics[name]
            if isinstance(topic, UnknownStream):
                check_name(name)
            if isinstance(topic, LakestreamError):
                raise topic
            return topic_configs(topic.configs, context.streams.topics.max_batch_bytes)
        case Resource.BROKER:
            broker = context.streams.describe_broker(context.principal)
            if not name:
                return []
            _check_broker(broker.broker_id, name)
            return broker_configs(broker.broker_id, context.settings, broker.max_batch_bytes)
        case Resource.BROKER_LOGGER:
            cluster.check(context.principal, Operation.DESCRIBE_CONFIGS)
            _check_broker(cluster.broker_id, name)
            return logger_configs()
        case Resource.CLIENT_METRICS:
            cluster.check(context.principal, Operation.DESCRIBE_CONFIGS)
            if not name:
                raise RequestError("a subscription to metrics has a name")
            return client_metrics_configs()
    raise RequestError(f"nothing of type {kind} has settings")


async def _of_group(context: Context, name: str) -> list[Config]:
    settings, own = await context.groups.settings(context.principal, name)
    if not name:
        raise RequestError("a group has a name")
    return group_configs(settings, own)


def _check_broker(broker_id: int, name: str) -> None:
    if name != str(broker_id):
        raise RequestError(f"this is broker {broker_id}: it tells of its own settings only")


def _fields(config: Config, request: Any) -> Fields:
    synonyms = [each._asdict() for each in config.synonyms] if request.include_synonyms else ()
    return {
        "name": config.name,
        "value": config.value,
        "read_only": config.read_only,
        "config_source": config.source,
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": config.kind,
        "documentation": config.documentation if getattr(request, "include_documentation", False) else None,
    }


API = api(32, handle, versions=(1, 4))
