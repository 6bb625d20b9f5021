"""A thousand connections that announce requests and do not send them, beside real producers and consumers."""

import re
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from support.worlds.embedded import Embedded, embedded

STRANGERS = 1_000
MIB = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Embedded]:
    """Both ends of a thousand connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * STRANGERS
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"{wanted} open files are needed, {hard} are allowed: ulimit -Hn {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted) if soft != resource.RLIM_INFINITY else soft, hard))
    try:
        with embedded(tmp_path) as brokers:
            yield brokers
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def strangers(broker: Embedded, announced_bytes: int, sent_bytes: int) -> Iterator[list[socket.socket]]:
    host, port = broker.address().split(":")
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(STRANGERS)]
        for each in sockets:
            each.setblocking(False)
            each.send(struct.pack(">ihhi", announced_bytes, 0, 9, 1) + bytes(sent_bytes))
        yield sockets


def exchange(broker: Embedded, count: int, **config: Any) -> float:
    """Produces records of 1 KB and consumes them again, all of them; the seconds it took."""
    topic = f"t-{uuid4().hex[:8]}"
    failed: list[KafkaError] = []
    started = time.monotonic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0} | config)
    for number in range(count):
        producer.produce(
            topic, b"%06d" % number + bytes(1_000), on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert not failed
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    seen: list[int] = []
    while len(seen) < count:
        assert time.monotonic() < started + 60, f"{len(seen)} of {count} came"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.append(int(message.value()[:6]))
    consumer.close()
    assert seen == list(range(count))
    return time.monotonic() - started


def test_eight_bytes_a_thousand_times_stop_nobody(broker: Embedded) -> None:
    with strangers(broker, 100 * MIB, 0):
        assert exchange(broker, 5_000) < 20


@pytest.mark.parametrize("announced_bytes", [MIB, 100 * MIB])
def test_nor_do_those_who_send_some_and_then_trickle(
    broker: Embedded, announced_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """70 KB each, more than all that the broker gives to arriving requests, and then a byte at a time. Records of the
    producer go in requests of up to 1 MB, of the same kind as those of the strangers."""
    with strangers(broker, announced_bytes, 70_000) as sockets:
        for _ in range(3):
            exchange(broker, 3_000, **{"batch.num.messages": 1_000})
            for each in sockets:
                try:
                    each.send(b"x")
                except OSError:
                    continue
    if announced_bytes == MIB:
        assert re.search(r"others wait for the memory", caplog.text), "nobody was cut off"
