"""Idempotent producers on bad days: whatever they take for success is in the log, once, in their order."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from support.clients.crowd import wait_until
from support.clients.producers import (
    Sender,
    VerifiableProducer,
    check,
    create,
    ends,
    failing_puts,
    first_put_fails,
    forget_producers,
    recreate,
    slow_puts,
    stored,
)
from support.worlds.embedded import Embedded, embedded

SETTINGS = {
    "stream.upload_deadline_ms": 1,
    "stream.flushes_in_flight": 4,
    "stream.predecessor_wait_ms": 1_500,
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("data"), 2, **SETTINGS) as brokers:
        yield brokers


@pytest.fixture
def topic(brokers: Embedded) -> str:
    name = f"t-{uuid4().hex[:8]}"
    create(brokers, name)
    return name


def test_librdkafka_over_a_bucket_that_refuses_every_other_object(brokers: Embedded, topic: str) -> None:
    """One flush fails and the next one lands: the batches behind a failed one are in flight."""
    sender = Sender(brokers, topic)
    with failing_puts(0.5):
        for number in range(600):
            sender.send(b"v.%d" % number)
            if number % 20 == 0:
                time.sleep(0.02)
        sender.flush(5)
    sender.flush()
    assert not sender.failed, Counter(error.name() for error in sender.failed.values())
    assert len(sender.acked) == 600
    found = stored(brokers, topic)
    assert len(found) == 600
    check(found, sender.acked, sender.offsets)


def test_librdkafka_whose_very_first_batch_fails_while_others_are_behind_it(brokers: Embedded, topic: str) -> None:
    sender, begun = Sender(brokers, topic), threading.Event()
    with first_put_fails(begun):
        sender.send(b"v.0")
        assert begun.wait(20)
        for number in range(1, 10):
            sender.send(b"v.%d" % number)
            time.sleep(0.02)
        sender.flush()
    assert not sender.failed, Counter(error.name() for error in sender.failed.values())
    found = stored(brokers, topic)
    check(found, sender.acked, sender.offsets)
    assert len(found) == 10


def test_librdkafka_asks_again_while_its_first_attempts_are_under_way(brokers: Embedded, topic: str) -> None:
    sender = Sender(brokers, topic, **{"socket.timeout.ms": 1_000, "request.timeout.ms": 500})
    sender.send(b"v.0")
    sender.flush()
    with slow_puts(2.5):
        for number in range(1, 60):
            sender.send(b"v.%d" % number)
            time.sleep(0.05)
    sender.flush()
    assert not sender.failed, Counter(error.name() for error in sender.failed.values())
    found = stored(brokers, topic)
    assert len(found) == 60
    check(found, sender.acked, sender.offsets)


def test_librdkafka_meets_a_topic_that_was_created_again(brokers: Embedded, topic: str) -> None:
    """Its sequences go on where the deleted topic stopped: it ends with a fatal error, and another one goes on."""
    sender = Sender(brokers, topic)
    sender.send(*(b"v.%d" % number for number in range(50)))
    sender.flush()
    before = len(sender.acked)
    assert before == 50
    recreate(brokers, topic)
    sender.acked.clear()
    sender.offsets.clear()
    for number in range(50, 300):
        sender.send(b"v.%d" % number)
        time.sleep(0.002)
    deadline = time.monotonic() + 30
    while not sender.failed and time.monotonic() < deadline:
        sender.flush(1)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in {error.name() for error in sender.failed.values()}
    check(stored(brokers, topic), sender.acked, sender.offsets)
    fresh = Sender(brokers, topic)
    fresh.send(b"v.1000")
    fresh.flush()
    assert fresh.acked == [b"v.1000"]


@pytest.fixture
def verifiable(java: str, kafka_libs: str, tmp_path: Path) -> Iterator[Callable[..., VerifiableProducer]]:
    started: list[VerifiableProducer] = []

    def start(brokers: Embedded, topic: str, count: int) -> VerifiableProducer:
        started.append(VerifiableProducer(java, kafka_libs, tmp_path, brokers.bootstrap, topic, count))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.mark.java
def test_java_over_a_bucket_that_refuses_every_other_object(
    brokers: Embedded, topic: str, verifiable: Callable[..., VerifiableProducer]
) -> None:
    producer = verifiable(brokers, topic, 450)
    producer.wait_for(1)
    with failing_puts(0.5) as refused:
        wait_until(lambda: len(refused) >= 10, "ten objects were refused", 30)
    producer.finish()
    assert not producer.named("producer_send_error"), producer.named("producer_send_error")[:3]
    acked, offsets = ends(producer)
    found = stored(brokers, topic)
    assert (len(acked), len(found)) == (450, 450)
    check(found, acked, offsets)


@pytest.mark.java
def test_java_whose_very_first_batch_fails_while_others_are_behind_it(
    brokers: Embedded, topic: str, verifiable: Callable[..., VerifiableProducer]
) -> None:
    with first_put_fails(threading.Event()):
        producer = verifiable(brokers, topic, 200)
        producer.finish()
    assert not producer.named("producer_send_error"), producer.named("producer_send_error")[:3]
    acked, offsets = ends(producer)
    found = stored(brokers, topic)
    check(found, acked, offsets)
    assert (len(acked), len(found)) == (200, 200)


@pytest.mark.java
def test_java_asks_again_while_its_first_attempts_are_under_way(
    brokers: Embedded, topic: str, verifiable: Callable[..., VerifiableProducer]
) -> None:
    producer = verifiable(brokers, topic, 450)
    producer.wait_for(1)
    with slow_puts(3.5):
        time.sleep(2)  # the client waits for 1.5 s before it asks again
    producer.finish()
    assert not producer.named("producer_send_error"), producer.named("producer_send_error")[:3]
    acked, offsets = ends(producer)
    found = stored(brokers, topic)
    assert (len(acked), len(found)) == (450, 450)
    check(found, acked, offsets)


@pytest.mark.java
def test_java_meets_a_topic_that_was_created_again(
    brokers: Embedded, topic: str, verifiable: Callable[..., VerifiableProducer]
) -> None:
    producer = verifiable(brokers, topic, 900)
    producer.wait_for(100)
    recreate(brokers, topic)
    producer.finish()
    acked, offsets = ends(producer)
    failed = producer.named("producer_send_error")
    assert len(acked) + len(failed) == 900
    found = stored(brokers, topic)
    # What was acked before the topic went is gone with it.
    kept = [value for value in acked if value in set(found)]
    last_lost = max((int(value) for value in acked if value not in set(found)), default=-1)
    assert [value for value in kept if int(value) < last_lost] == []
    check(found, kept, {value: offsets[value] for value in kept})
    assert found, "the producer started anew"


async def test_librdkafka_goes_on_after_its_state_expired(brokers: Embedded, topic: str) -> None:
    sender = Sender(brokers, topic)
    sender.send(*(b"v.%d" % number for number in range(50)))
    sender.flush()
    assert await forget_producers(brokers) >= 1
    sender.send(*(b"v.%d" % number for number in range(50, 100)))
    sender.flush()
    assert not sender.failed, sender.failed
    found = stored(brokers, topic)
    assert len(found) == 100
    check(found, sender.acked, sender.offsets)


@pytest.mark.java
async def test_java_goes_on_after_its_state_expired(
    brokers: Embedded, topic: str, verifiable: Callable[..., VerifiableProducer]
) -> None:
    producer = verifiable(brokers, topic, 600)
    producer.wait_for(100)
    assert await forget_producers(brokers) >= 1
    producer.finish()
    assert not producer.named("producer_send_error"), producer.named("producer_send_error")[:3]
    acked, offsets = ends(producer)
    found = stored(brokers, topic)
    assert (len(acked), len(found)) == (600, 600)
    check(found, acked, offsets)
