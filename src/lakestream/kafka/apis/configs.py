"""The settings that topics and brokers report to Kafka clients.

A setting that nobody set is reported with the value that holds, and from where it comes.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from lakestream.coordination.groups.configured import OPTIONS as GROUP_OPTIONS
from lakestream.coordination.settings import GroupSettings
from lakestream.kafka.apis import loggers
from lakestream.kafka.settings import KafkaSettings
from lakestream.metadata.topics.option_list import INERT, MAX_MESSAGE_BYTES, OPTIONS, SETTLED
from lakestream.stream import StreamSettings


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


class Resource:
    """What has settings, by Kafka's numbers."""

    TOPIC: Final = 2
    BROKER: Final = 4
    BROKER_LOGGER: Final = 8
    CLIENT_METRICS: Final = 16
    GROUP: Final = 32
    ALL: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


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


_USUAL_BATCH_BYTES: Final = StreamSettings().max_batch_bytes


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


def logger_configs() -> list[Config]:
    """The levels of this broker's loggers."""
    return [Config(name, level, Kind.UNKNOWN, Source.BROKER_LOGGER, "") for name, level in loggers.levels().items()]


def group_configs(settings: GroupSettings, own: Mapping[str, str]) -> list[Config]:
    """Of a group for which `settings` hold, of which it has `own`."""
    return [
        Config(
            option.name,
            _text(getattr(settings, option.field)),
            _KINDS_OF_VALUES[type(option.usual)],
            Source.GROUP if option.name in own else _source(getattr(settings, option.field) == option.usual),
            option.documentation,
        )
        for option in GROUP_OPTIONS
    ]


_KINDS_OF_VALUES: Final = {int: Kind.INT, str: Kind.STRING, bool: Kind.BOOLEAN}


def _text(value: int | str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def client_metrics_configs() -> list[Config]:
    """Of any subscription: no broker receives metrics of clients, so all there is are Kafka's defaults."""
    text = "Without effect: metrics of clients are not received here."
    return [
        Config("interval.ms", "300000", Kind.INT, Source.DEFAULT, text, read_only=True),
        Config("match", "", Kind.LIST, Source.DEFAULT, text, read_only=True),
        Config("metrics", "", Kind.LIST, Source.DEFAULT, text, read_only=True),
    ]


def broker_configs(broker_id: int, settings: KafkaSettings, max_batch_bytes: int) -> list[Config]:
    """The settings of a broker, in order of their names; none can be changed through Kafka."""
    usual = {name: value for name, value, _, _ in _broker_values(broker_id, KafkaSettings(), _USUAL_BATCH_BYTES)}
    return [
        Config(name, value, kind, _source(value == usual[name] and name != "broker.id"), text, read_only=True)
        for name, value, kind, text in _broker_values(broker_id, settings, max_batch_bytes)
    ]


def _source(is_usual: bool) -> int:
    return Source.DEFAULT if is_usual else Source.STATIC_BROKER


def _broker_values(broker_id: int, settings: KafkaSettings, max_batch_bytes: int) -> list[tuple[str, str, int, str]]:
    return [
        (
            "auto.create.topics.enable",
            str(settings.auto_create_topics).lower(),
            Kind.BOOLEAN,
            "Unknown topics are made.",
        ),
        ("broker.id", str(broker_id), Kind.INT, "The broker's number."),
        ("default.replication.factor", "1", Kind.INT, "Copies are kept by the object store."),
        ("fetch.max.bytes", str(settings.max_fetch_bytes), Kind.INT, "The most that one fetch answers."),
        (
            "group.initial.rebalance.delay.ms",
            str(settings.groups.initial_rebalance_delay_ms),
            Kind.INT,
            "How long the first member of a group waits for others.",
        ),
        (
            "group.consumer.heartbeat.interval.ms",
            str(settings.groups.consumer_heartbeat_interval_ms),
            Kind.INT,
            "How often members of the newer protocol are asked to be heard of.",
        ),
        (
            "group.consumer.migration.policy",
            settings.groups.consumer_migration_policy,
            Kind.STRING,
            "Whether a group with members may go over to the other protocol.",
        ),
        (
            "group.consumer.session.timeout.ms",
            str(settings.groups.consumer_session_timeout_ms),
            Kind.INT,
            "After how long without a heartbeat a member of the newer protocol is out.",
        ),
        ("group.max.session.timeout.ms", str(settings.groups.max_session_timeout_ms), Kind.INT, ""),
        ("group.min.session.timeout.ms", str(settings.groups.min_session_timeout_ms), Kind.INT, ""),
        ("message.max.bytes", str(max_batch_bytes), Kind.INT, "The largest record batch, where a topic does not say."),
        ("num.partitions", str(settings.num_partitions), Kind.INT, "Partitions of a topic whose creator did not say."),
        (
            "offsets.retention.check.interval.ms",
            str(settings.groups.sweep_interval_ms),
            Kind.LONG,
            "How often offsets that have lapsed are looked for.",
        ),
        (
            "offsets.retention.minutes",
            str(settings.groups.offsets_retention_ms // 60_000),
            Kind.INT,
            "How long offsets of a group without members stay.",
        ),
        ("offset.metadata.max.bytes", str(settings.groups.max_metadata_bytes), Kind.INT, "Text with an offset."),
        ("socket.request.max.bytes", str(settings.max_frame_bytes), Kind.INT, "The largest request."),
    ]


def _topic_defaults(max_batch_bytes: int) -> list[Config]:
    options = [*OPTIONS, *(inert.option for inert in INERT), *SETTLED]
    largest = Config(
        MAX_MESSAGE_BYTES,
        str(max_batch_bytes),
        Kind.INT,
        _source(max_batch_bytes == _USUAL_BATCH_BYTES),
        "The largest record batch, as it arrives and as it is kept.",
    )
    return [
        largest,
        *(Config(each.name, each.default, _KINDS[each.kind], Source.DEFAULT, each.meaning) for each in options),
    ]
