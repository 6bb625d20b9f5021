"""The settings of topics as clients are shown them, and changes to them step by step.

A setting that nobody set is shown with the value that holds, and from where it comes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from lakestream.errors import InvalidSetting, RequestError
from lakestream.metadata.topics.option_list import INERT, MAX_MESSAGE_BYTES, OPTIONS, SETTLED
from lakestream.stream.settings import StreamSettings


class Kind:
    """Value types, by Kafka's numbers."""

    UNKNOWN: Final = 0
    BOOLEAN: Final = 1
    STRING: Final = 2
    INT: Final = 3
    LONG: Final = 5
    DOUBLE: Final = 6
    LIST: Final = 7


_KINDS: Final = {
    "boolean": Kind.BOOLEAN,
    "string": Kind.STRING,
    "int": Kind.INT,
    "long": Kind.LONG,
    "double": Kind.DOUBLE,
    "list": Kind.LIST,
}


class Source:
    """Where a value comes from, by Kafka's numbers."""

    TOPIC: Final = 1
    STATIC_BROKER: Final = 4
    DEFAULT: Final = 5
    BROKER_LOGGER: Final = 6
    GROUP: Final = 8


class Synonym(NamedTuple):
    """A setting by which a value came about."""

    name: str
    value: str | None
    source: int


_BROKER_NAMES: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
}
"""A topic's settings by the names that Kafka's brokers have for their defaults, where those differ."""


USUAL_BATCH_BYTES: Final = StreamSettings().max_batch_bytes


_LISTS: Final = {
    option.name: option.default for option in (*OPTIONS, *(inert.option for inert in INERT)) if option.kind == "list"
}


class Config(NamedTuple):
    name: str
    value: str | None
    kind: int
    source: int
    documentation: str
    read_only: bool = False
    default: "Synonym | None" = None
    """What holds where nobody set it; None: that is the value."""

    @property
    def synonyms(self) -> list[Synonym]:
        """Where the value comes from, first what counts."""
        own = Synonym(_BROKER_NAMES.get(self.name, self.name), self.value, self.source)
        if self.default is None:
            return [own]
        return [Synonym(self.name, self.value, self.source), self.default]


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


def topic_configs(configs: Mapping[str, str], max_batch_bytes: int) -> list[Config]:
    """All of a topic's settings, in order of their names."""
    defaults = {config.name: config for config in _topic_defaults(max_batch_bytes)}
    known = {
        name: defaults[name]._replace(value=value, source=Source.TOPIC, default=defaults[name].synonyms[0])
        if name in defaults
        else Config(name, value, Kind.STRING, Source.TOPIC, "Without effect: no setting of a topic.")
        for name, value in configs.items()
    }
    return [config for _, config in sorted((defaults | known).items())]


def default_or_static(is_usual: bool) -> int:
    """Where the value of a broker's setting comes from."""
    return Source.DEFAULT if is_usual else Source.STATIC_BROKER


def _topic_defaults(max_batch_bytes: int) -> list[Config]:
    options = [*OPTIONS, *(inert.option for inert in INERT), *SETTLED]
    largest = Config(
        MAX_MESSAGE_BYTES,
        str(max_batch_bytes),
        Kind.INT,
        default_or_static(max_batch_bytes == USUAL_BATCH_BYTES),
        "The largest record batch, as it arrives and as it is kept.",
    )
    return [
        largest,
        *(Config(each.name, each.default, _KINDS[each.kind], Source.DEFAULT, each.meaning) for each in options),
    ]


def step_by_step(wanted: Sequence[Wanted]) -> Change:
    """Each setting by its own operation; the others stay."""

    def change(present: Mapping[str, str]) -> dict[str, str]:
        configs = dict(present)
        for each in wanted:
            if each.operation == ConfigOperation.DELETE:
                configs.pop(each.name, None)
                continue
            if each.value is None:
                raise RequestError(f"{each.name} needs a value")
            configs[each.name] = each.value if each.operation == ConfigOperation.SET else _listed(configs, each)
        return configs

    return change


def instead(given: Mapping[str, str | None]) -> Change:
    """These settings instead of all that there are."""

    def change(present: Mapping[str, str]) -> dict[str, str]:
        configs = {}
        for name, value in given.items():
            if value is None:
                raise RequestError(f"{name} needs a value")
            configs[name] = value
        return configs

    return change


def _listed(configs: Mapping[str, str], wanted: Wanted) -> str:
    if wanted.operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise RequestError(f"{wanted.name}: there is no operation {wanted.operation}")
    if wanted.name not in _LISTS:
        raise InvalidSetting(f"{wanted.name} is no list: set it instead")
    words = [word for word in configs.get(wanted.name, _LISTS[wanted.name]).split(",") if word]
    given = [word.strip() for word in (wanted.value or "").split(",")]
    if wanted.operation == ConfigOperation.APPEND:
        words += [word for word in given if word not in words]
    else:
        words = [word for word in words if word.strip() not in given]
    return ",".join(words)
