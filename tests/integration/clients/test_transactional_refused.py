"""Transactions are not served yet: a transactional producer of any client learns so at once, not after a minute."""

import asyncio
import subprocess
import time
import warnings
from collections.abc import Iterator

import aiokafka
import pytest
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaError, KafkaException, Producer
from support.worlds.embedded import Embedded, embedded

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

AT_ONCE_S = 10.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("data")) as brokers:
        yield brokers


def test_librdkafka(broker: Embedded) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "tx", "log_level": 0})
    started = time.monotonic()
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(60)
    assert time.monotonic() - started < AT_ONCE_S
    error: KafkaError = refused.value.args[0]
    assert error.fatal()
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "transactions are not served yet" in error.str()


def test_kcat(broker: Embedded, kcat: str) -> None:
    produce = [kcat, "-P", "-b", broker.bootstrap, "-t", "t", "-X", "transactional.id=tx"]
    refused = subprocess.run(produce, input="x\n", capture_output=True, text=True, timeout=AT_ONCE_S, check=False)
    assert refused.returncode == 1
    assert "transactions are not served yet" in refused.stderr


async def test_aiokafka(broker: Embedded) -> None:
    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="tx")
        async with asyncio.timeout(AT_ONCE_S):
            with pytest.raises(TransactionalIdAuthorizationFailed):
                await producer.start()
            await producer.stop()

    await start()


def test_kafka_python(broker: Embedded) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="tx")
    started = time.monotonic()
    with pytest.raises(kafka.errors.TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    assert time.monotonic() - started < AT_ONCE_S
    producer.close(timeout=5)


@pytest.mark.java
def test_java(broker: Embedded, java: str, kafka_libs: str) -> None:
    command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libs}/*"]
    command += ["org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", broker.bootstrap, "--topic", "t"]
    command += ["--num-records", "1", "--record-size", "10", "--throughput", "-1", "--transactional-id", "tx"]
    # The JVM itself takes a few seconds on a busy machine; a client that retries goes on for a minute.
    refused = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    assert refused.returncode == 1
    assert "TransactionalIdAuthorizationException" in refused.stderr
