"""DescribeConfigs, v1–v4.

The settings of topics (type 2) and of this broker (type 4); an empty broker name is the cluster-wide
default, of which there is none. Keys that are asked for by name are filtered. Other resources are INVALID_REQUEST.
Synonyms name where a value comes from; types and documentation from v3 on.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.configs import Config, broker_configs, topic_configs
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields

_TOPIC: Final = 2
_BROKER: Final = 4


async def handle(context: Context, request: Any) -> Reply:
    names = [asked.resource_name for asked in request.resources if asked.resource_type == _TOPIC]
    topics = await context.streams.find(context.principal, Operation.DESCRIBE_CONFIGS, names)
    results = []
    for asked in request.resources:
        configs: list[Config] = []
        code, message = ErrorCode.none, None
        if asked.resource_type == _TOPIC:
            topic = topics[asked.resource_name]
            if isinstance(topic, LakestreamError):
                code, message = code_of(topic), str(topic)
            else:
                configs = topic_configs(topic.configs, context.streams.topics.max_batch_bytes)
        elif asked.resource_type == _BROKER:
            try:
                broker = context.streams.describe_broker(context.principal)
            except LakestreamError as error:
                code, message = code_of(error), str(error)
            else:
                if asked.resource_name == str(broker.broker_id):
                    configs = broker_configs(broker.broker_id, context.settings, broker.max_batch_bytes)
                elif asked.resource_name:
                    code, message = ErrorCode.invalid_request, f"this is broker {broker.broker_id}"
        else:
            code, message = ErrorCode.invalid_request, "only topics and brokers have settings here"
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


def _fields(config: Config, request: Any) -> Fields:
    synonym = {"name": config.name, "value": config.value, "source": config.source}
    return {
        "name": config.name,
        "value": config.value,
        "read_only": config.read_only,
        "config_source": config.source,
        "is_sensitive": False,
        "synonyms": [synonym] if request.include_synonyms else (),
        "config_type": config.kind,
        "documentation": config.documentation if getattr(request, "include_documentation", False) else None,
    }


API = api(32, handle, versions=(1, 4))
