"""The settings that topics and brokers report to Kafka clients.

A setting that nobody set is reported with the value that holds, and from where it comes.
"""

from collections.abc import Mapping
from typing import Final

from lakestream.coordination.groups.configured import OPTIONS as GROUP_OPTIONS
from lakestream.coordination.settings import GroupSettings
from lakestream.kafka.apis import loggers
from lakestream.kafka.settings import KafkaSettings
from lakestream.stream.configs import USUAL_BATCH_BYTES, Config, Kind, Source, default_or_static


class Resource:
    """What has settings, by Kafka's numbers."""

    TOPIC: Final = 2
    BROKER: Final = 4
    BROKER_LOGGER: Final = 8
    CLIENT_METRICS: Final = 16
    GROUP: Final = 32
    ALL: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


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
            Source.GROUP if option.name in own else default_or_static(getattr(settings, option.field) == option.usual),
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
    usual = {name: value for name, value, _, _ in _broker_values(broker_id, KafkaSettings(), USUAL_BATCH_BYTES)}
    return [
        Config(name, value, kind, default_or_static(value == usual[name] and name != "broker.id"), text, read_only=True)
        for name, value, kind, text in _broker_values(broker_id, settings, max_batch_bytes)
    ]


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
