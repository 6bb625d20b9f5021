"""Changes to settings of topics and groups and to levels of loggers, for AlterConfigs and IncrementalAlterConfigs."""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import LakestreamError, RequestError
from lakestream.kafka.apis import loggers
from lakestream.kafka.apis.api import Context
from lakestream.kafka.apis.configs import Resource
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.stream.configs import Change, ConfigOperation


async def alter(context: Context, resource: Any, change: Change, *, validate_only: bool) -> Fields:
    """One resource of a request. What is refused changes nothing. As in Kafka, what cannot be done to a setting is told
    before whose it would be."""
    code, message = ErrorCode.none, None
    names = [config.name for config in resource.configs]
    kind, name = resource.resource_type, resource.resource_name
    try:
        if len(set(names)) < len(names):
            raise RequestError("a setting is named twice")
        empty = next((each.name for each in resource.configs if each.value is None and _sets(each)), None)
        if empty is not None:
            raise RequestError(f"{empty} needs a value")
        if kind == Resource.TOPIC:
            if not name:
                change({})
                raise RequestError("a topic has a name: there are no settings for all topics")
            await context.streams.topics.alter(context.principal, name, change, dry_run=validate_only)
        elif kind == Resource.GROUP:
            if not name:
                change({})
                raise RequestError("a group has a name: there are no settings for all groups")
            await context.groups.alter(context.principal, name, change, dry_run=validate_only)
        else:
            _alter_other(context, resource, validate_only=validate_only)
    except LakestreamError as error:
        code, message = code_of(error), str(error)
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


def _alter_other(context: Context, resource: Any, *, validate_only: bool) -> None:
    """Of a resource that is neither a topic nor a group. Raises `RequestError`."""
    kind, name, cluster = resource.resource_type, resource.resource_name, context.streams.cluster
    cluster.check(context.principal, Operation.ALTER_CONFIGS)
    if kind == Resource.BROKER_LOGGER and hasattr(next(iter(resource.configs), None), "config_operation"):
        if name != str(cluster.broker_id):
            raise RequestError(f"this is broker {cluster.broker_id}: it changes its own loggers only")
        wanted = [(each.name, _level(each)) for each in resource.configs]
        for logger, level in wanted:
            loggers.check_level(logger, level)
        if not validate_only:
            loggers.set_levels(wanted)
    elif kind == Resource.BROKER:
        if name not in ("", str(cluster.broker_id)):
            raise RequestError(f"this is broker {cluster.broker_id}")
        # What nobody can set is not there to be deleted: tools clear throttles that way.
        if any(map(_sets, resource.configs)):
            raise RequestError("a broker's settings are in its settings file: change them there, and start it again")
    elif kind == Resource.CLIENT_METRICS:
        raise RequestError("metrics of clients are not received here, so nobody can subscribe to them")
    else:
        raise RequestError("only settings of topics and groups and levels of loggers can change")


def _sets(config: Any) -> bool:
    return getattr(config, "config_operation", ConfigOperation.SET) != ConfigOperation.DELETE


def _level(config: Any) -> str | None:
    if config.config_operation == ConfigOperation.DELETE:
        return None
    if config.config_operation != ConfigOperation.SET or config.value is None:
        raise RequestError(f"the level of {config.name} is set or deleted")
    level: str = config.value
    return level
