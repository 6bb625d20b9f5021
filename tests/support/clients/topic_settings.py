"""Settings of topics, as librdkafka's admin client is told them."""

from confluent_kafka.admin import AdminClient, ConfigResource


def setting_of(admin: AdminClient, topic: str, name: str) -> str:
    resource = ConfigResource("topic", topic)
    return str(admin.describe_configs([resource])[resource].result(20)[name].value)
