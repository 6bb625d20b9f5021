"""The Kafka front door: framing, and one handler file per API. Beside `spark_source` no other room
knows the wire format."""

from lakestream.kafka.server import KafkaServer
from lakestream.kafka.settings import KafkaSettings

__all__ = ["KafkaServer", "KafkaSettings"]
