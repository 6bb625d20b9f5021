"""The settings that topics and brokers report to Kafka clients.

Topics keep whatever settings they were created with; those that Kafka's tools expect to see
and nobody set are reported with the value that describes how we behave.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from lakestream.kafka.settings import KafkaSettings
from lakestream.metadata.options import OPTIONS


class Kind:
    """Value types, by Kafka's numbers."""

    BOOLEAN: Final = 1
    STRING: Final = 2
    INT: Final = 3
    LONG: Final = 5
    DOUBLE: Final = 6
    LIST: Final = 7


_KINDS: Final = {
    "boolean": Kind.BOOLEAN,
    "string": Kind.STRING,
    "long": Kind.LONG,
    "double": Kind.DOUBLE,
    "list": Kind.LIST,
}


class Source:
    """Where a value comes from, by Kafka's numbers."""

    TOPIC: Final = 1
    STATIC_BROKER: Final = 4
    DEFAULT: Final = 5


class Config(NamedTuple):
    name: str
    value: str | None
    kind: int
    source: int
    documentation: str
    read_only: bool = False


def topic_configs(configs: Mapping[str, str], max_batch_bytes: int) -> list[Config]:
    """All of a topic's settings, in order of their names."""
    defaults = {config.name: config for config in _topic_defaults(max_batch_bytes)}
    known = {
        name: defaults[name]._replace(value=value, source=Source.TOPIC)
        if name in defaults
        else Config(name, value, Kind.STRING, Source.TOPIC, "Set when the topic was created.")
        for name, value in configs.items()
    }
    return [config for _, config in sorted((defaults | known).items())]


def broker_configs(broker_id: int, settings: KafkaSettings, max_batch_bytes: int) -> list[Config]:
    """The settings of a broker, in order of their names; none can be changed through Kafka."""
    values = [
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
        ("group.max.session.timeout.ms", str(settings.groups.max_session_timeout_ms), Kind.INT, ""),
        ("group.min.session.timeout.ms", str(settings.groups.min_session_timeout_ms), Kind.INT, ""),
        ("message.max.bytes", str(max_batch_bytes), Kind.INT, "The largest record batch."),
        ("num.partitions", str(settings.num_partitions), Kind.INT, "Partitions of a topic whose creator did not say."),
        ("offset.metadata.max.bytes", str(settings.groups.max_metadata_bytes), Kind.INT, "Text with an offset."),
        ("socket.request.max.bytes", str(settings.max_frame_bytes), Kind.INT, "The largest request."),
    ]
    return [Config(name, value, kind, Source.STATIC_BROKER, text, read_only=True) for name, value, kind, text in values]


def _topic_defaults(max_batch_bytes: int) -> list[Config]:
    values = [
        ("compression.type", "producer", Kind.STRING, "Batches stay as the producer compressed them."),
        ("lakestream.profile", "diskless", Kind.STRING, "Where WAL objects go and how long they wait."),
        ("max.message.bytes", str(max_batch_bytes), Kind.INT, "The largest record batch."),
        ("message.timestamp.type", "CreateTime", Kind.STRING, "Timestamps are the producer's."),
        ("min.insync.replicas", "1", Kind.INT, "An ack means that the object store has the records."),
        *((option.name, option.default, _KINDS[option.kind], option.meaning) for option in OPTIONS),
    ]
    return [Config(name, value, kind, Source.DEFAULT, text) for name, value, kind, text in values]
