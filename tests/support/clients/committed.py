"""What a consumer of committed records reads of whole topics."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

WAIT_S = 60.0


def committed(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """All records of a topic up to the end that it has now, partition by partition in the order of offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader-of-all",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    count = len(consumer.list_topics(topic, 20).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(count)])
    read: list[Message] = []
    ended: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < count:
        assert time.monotonic() < deadline, f"partitions {ended} of {count} have ended, {len(read)} records"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            read.append(message)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return sorted(read, key=lambda message: (message.partition(), message.offset()))


def until(done: Callable[[], bool], timeout_s: float, told: Callable[[], object] = lambda: "") -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, told()
        time.sleep(0.3)
