"""The Kafka front door: framing, one handler file per API, consumer groups. No other room knows the wire format."""

from lakestream.kafka.groups import GroupCoordinator
from lakestream.kafka.server import KafkaServer
from lakestream.kafka.settings import GroupSettings, KafkaSettings

__all__ = ["GroupCoordinator", "GroupSettings", "KafkaServer", "KafkaSettings"]
