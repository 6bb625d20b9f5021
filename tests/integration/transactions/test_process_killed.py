"""Read, process, write while brokers are killed with -9: each record is processed once, whatever a client heard."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.worlds.processes import ProcessWorld

QUICK = {
    "LAKESTREAM_STREAM_BROKER_TTL_MS": "3000",
    "LAKESTREAM_KAFKA_GROUPS_LEASE_TTL_MS": "1500",
    "LAKESTREAM_KAFKA_GROUPS_INITIAL_REBALANCE_DELAY_MS": "100",
    "LAKESTREAM_KAFKA_TRANSACTIONS_SWEEP_INTERVAL_MS": "500",
}
WAIT_S = 90.0
PARTITIONS = 4
RECORDS = 600
A_TRANSACTION = 40


class Processor:
    """Copies `in` to `out`. Begins anew after whatever it cannot go on from."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.transactions = 0

    def run(self) -> Iterator[None]:
        """A step for each transaction, as long as anything is left."""
        while True:
            consumer = Consumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "group.id": "g",
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": 6_000,
                    "reconnect.backoff.max.ms": 500,
                    "log_level": 0,
                }
            )
            consumer.subscribe(["in"])
            with suppress(KafkaException):
                producer = Producer(
                    {
                        "bootstrap.servers": self._bootstrap,
                        "transactional.id": "copier",
                        "transaction.timeout.ms": 10_000,
                        "reconnect.backoff.max.ms": 500,
                        "log_level": 0,
                    }
                )
                producer.init_transactions(20)
                while self._transaction(consumer, producer):
                    yield
            consumer.close()
            yield

    def _transaction(self, consumer: Consumer, producer: Producer) -> bool:
        producer.begin_transaction()
        for _ in range(A_TRANSACTION):
            message = consumer.poll(0.5)
            if message is None:
                break
            if message.error() is None:
                producer.produce("out", message.value(), partition=message.partition())
        try:
            places = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 20)
            self._commit(producer)
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if error.txn_requires_abort():
                producer.abort_transaction(20)
            return False
        self.transactions += 1
        return True

    def _commit(self, producer: Producer) -> None:
        for _ in range(5):
            try:
                producer.commit_transaction(10)
            except KafkaException as failed:
                if not failed.args[0].retriable():
                    raise
            else:
                return
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _committed(bootstrap: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("out", index, 0) for index in range(PARTITIONS)])
    values, ended, deadline = [], set(), time.monotonic() + WAIT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is not None:
            if message.error() is None:
                values.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return sorted(value for value in values if value is not None)


def test_each_record_is_processed_once(cluster: Callable[..., ProcessWorld]) -> None:
    brokers = cluster(brokers=3, environment=QUICK)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS) for name in ("in", "out")]).values():
        future.result(20)
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True})
    values = sorted(b"%d" % number for number in range(RECORDS))
    for number, value in enumerate(values):
        producer.produce("in", value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    processor = Processor(brokers.bootstrap)
    deadline = time.monotonic() + WAIT_S
    kills = 0
    for _ in processor.run():
        if processor.transactions >= 3 * (kills + 1) and kills < 3:
            brokers.brokers[kills].kill()
            brokers.start_broker(kills)
            kills += 1
        if processor.transactions * A_TRANSACTION >= RECORDS and _committed(brokers.bootstrap) == values:
            break
        assert time.monotonic() < deadline, (processor.transactions, len(_committed(brokers.bootstrap)))
    assert kills == 3
    assert _committed(brokers.bootstrap) == values
