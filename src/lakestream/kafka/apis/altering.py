"""Changes to topics' settings, for AlterConfigs and IncrementalAlterConfigs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from lakestream.errors import InvalidSetting, LakestreamError
from lakestream.kafka.apis.api import Context
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.option_list import INERT, OPTIONS

_TOPIC: Final = 2
_LISTS: Final = {
    option.name: option.default for option in (*OPTIONS, *(inert.option for inert in INERT)) if option.kind == "list"
}


class ConfigOperation:
    """By Kafka's numbers."""

    SET: Final = 0
    DELETE: Final = 1
    APPEND: Final = 2
    SUBTRACT: Final = 3


class Wanted(NamedTuple):
    name: str
    operation: int
    value: str | None


Change = Callable[[Mapping[str, str]], dict[str, str]]


async def alter(context: Context, resource: Any, change: Change, *, validate_only: bool) -> Fields:
    """One resource of a request. What is refused changes nothing."""
    code, message = ErrorCode.none, None
    names = [config.name for config in resource.configs]
    if resource.resource_type != _TOPIC:
        code, message = (
            ErrorCode.invalid_request,
            "only topics' settings can change: a broker's are in its settings file",
        )
    elif len(set(names)) < len(names):
        code, message = ErrorCode.invalid_request, "a setting is named twice"
    else:
        try:
            await context.streams.topics.alter(context.principal, resource.resource_name, change, dry_run=validate_only)
        except LakestreamError as error:
            code, message = code_of(error), str(error)
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


def step_by_step(wanted: Sequence[Wanted]) -> Change:
    """Each setting by its own operation; the others stay."""

    def change(present: Mapping[str, str]) -> dict[str, str]:
        configs = dict(present)
        for each in wanted:
            if each.operation == ConfigOperation.DELETE:
                configs.pop(each.name, None)
                continue
            if each.value is None:
                raise InvalidSetting(f"{each.name} needs a value")
            configs[each.name] = each.value if each.operation == ConfigOperation.SET else _listed(configs, each)
        return configs

    return change


def instead(given: Mapping[str, str | None]) -> Change:
    """These settings instead of all that there are."""

    def change(present: Mapping[str, str]) -> dict[str, str]:
        configs = {}
        for name, value in given.items():
            if value is None:
                raise InvalidSetting(f"{name} needs a value")
            configs[name] = value
        return configs

    return change


def _listed(configs: Mapping[str, str], wanted: Wanted) -> str:
    if wanted.operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise InvalidSetting(f"{wanted.name}: there is no operation {wanted.operation}")
    if wanted.name not in _LISTS:
        raise InvalidSetting(f"{wanted.name} is no list: set it instead")
    words = [word for word in configs.get(wanted.name, _LISTS[wanted.name]).split(",") if word]
    given = [word.strip() for word in (wanted.value or "").split(",")]
    if wanted.operation == ConfigOperation.APPEND:
        words += [word for word in given if word not in words]
    else:
        words = [word for word in words if word.strip() not in given]
    return ",".join(words)
