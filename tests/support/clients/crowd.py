"""Real librdkafka clients that write down what they were told: producers, a reader of everything, a consumer group."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

PATIENCE_S = 150
"""How long a record may take to be acknowledged, at most: longer than any outage of a test."""
CLIENT = {
    "socket.timeout.ms": 2_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


class Sent(NamedTuple):
    """What a record holds; `read` has the same from a stream or a table, with its timestamp."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


class Client(threading.Thread):
    """Works until `finish`, which waits for the end and raises what went wrong."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.errors: list[KafkaError] = []
        """What librdkafka told the application of its connections, which it mends by itself."""
        self._asked_to_stop = threading.Event()
        self._failure: Exception | None = None

    @property
    def stopping(self) -> bool:
        return self._asked_to_stop.is_set()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self._failure = error

    def work(self) -> None:
        raise AssertionError("a client does something")

    def finish(self) -> None:
        self._asked_to_stop.set()
        self.join()
        if self._failure is not None:
            raise self._failure


class Writer(Client):
    """A producer at a steady pace, idempotent unless its configuration says otherwise. `acked[partition][offset]` is
    what was acknowledged there, `placeless` what was without an offset (librdkafka gives none for a batch that it
    learns is a duplicate); `unknown` has the values without a verdict."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, records_per_s: int, **config: Any
    ) -> None:
        super().__init__(name)
        self._topic = topic
        self._partitions = partitions
        self._records_per_s = records_per_s
        self.acked: dict[int, dict[int, Sent]] = {index: {} for index in range(partitions)}
        self.placeless: dict[int, list[Sent]] = {index: [] for index in range(partitions)}
        self.unknown: set[bytes] = set()
        self.twice: list[tuple[int, int]] = []
        settings = {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": PATIENCE_S * 1000}
        where = {"bootstrap.servers": bootstrap, "request.timeout.ms": 1_500, "error_cb": self.errors.append}
        self._producer = Producer(CLIENT | settings | where | config)

    @property
    def acked_count(self) -> int:
        return sum(map(len, (*self.acked.values(), *self.placeless.values())))

    def work(self) -> None:
        number, started = 0, time.monotonic()
        while not self.stopping:
            while number < (time.monotonic() - started) * self._records_per_s:
                self._send(number)
                number += 1
            self._producer.poll(0.02)
        assert self._producer.flush(PATIENCE_S + 10) == 0, "records are left without any answer"

    def _send(self, number: int) -> None:
        name = f"{self.name}-{number}".encode()
        partition = number % self._partitions
        sent = Sent(b"k%d" % (number % 97), name + b"." * (number % 300), (("number", b"%d" % number),))

        def told(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self.unknown.add(sent.value)
            elif message.offset() is None:
                self.placeless[partition].append(sent)
            elif self.acked[partition].setdefault(message.offset(), sent) is not sent:
                self.twice.append((partition, message.offset()))

        headers: Any = list(sent.headers)
        while True:
            try:
                self._producer.produce(self._topic, sent.value, sent.key, partition, on_delivery=told, headers=headers)
                return
            except BufferError:
                self._producer.poll(0.1)


class Follower(Client):
    """Reads every partition from its start while it is written. Each offset must come once, in order, without a gap:
    `seen[partition][offset]`, and `wrong` says what did not."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__("follower")
        self.seen: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
        self.wrong: list[str] = []
        settings = {"group.id": "follower", "enable.auto.commit": False, "auto.offset.reset": "error"}
        where = {"bootstrap.servers": bootstrap, "fetch.wait.max.ms": 200, "error_cb": self.errors.append}
        self._consumer = Consumer(CLIENT | settings | where)
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])

    def work(self) -> None:
        try:
            while not self.stopping:
                for message in self._consumer.consume(500, 0.1):
                    if message.error() is not None:
                        self.wrong.append(f"error {message.error()}")
                        continue
                    seen = self.seen[message.partition()]
                    if message.offset() != len(seen):
                        self.wrong.append(f"{message.partition()}: {message.offset()} after {len(seen) - 1}")
                    seen.append(message.value())
        finally:
            self._consumer.close()


class Crew:
    """What the members of a consumer group share. `committed[partition]` is the highest offset whose commit was
    acknowledged to any of them; `seen[partition][offset]` is what was handed to any of them."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.lock = threading.Lock()
        self.committed: dict[int, int] = defaultdict(int)
        self.seen: dict[int, dict[int, bytes]] = {index: {} for index in range(partitions)}
        self.wrong: list[str] = []
        self.errors: list[KafkaError] = []
        self.commits = 0
        self.handed = 0
        self.refused: list[str] = []
        """Commits that failed, and messages that were errors."""

    def consumer(self) -> Consumer:
        settings = {"group.id": "crew", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        pace = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000, "fetch.wait.max.ms": 200}
        where = {"bootstrap.servers": self.bootstrap, "error_cb": self.errors.append}
        return Consumer(CLIENT | settings | pace | where)

    def places(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, index) for index in range(self.partitions)]


class Member(Client):
    """Commits what it was handed, after it was handed it."""

    def __init__(self, name: str, crew: Crew) -> None:
        super().__init__(name)
        self._crew = crew
        self._consumer = crew.consumer()

    def work(self) -> None:
        self._consumer.subscribe([self._crew.topic])
        try:
            while not self.stopping:
                messages = self._consumer.consume(300, 0.2)
                self._crew.refused += [str(message.error()) for message in messages if message.error() is not None]
                self._take([message for message in messages if message.error() is None])
        finally:
            self._consumer.close()

    def _take(self, messages: Iterable[Any]) -> None:
        ends: dict[int, int] = {}
        for message in messages:
            ends[message.partition()] = message.offset() + 1
            with self._crew.lock:
                self._crew.handed += 1
                known = self._crew.seen[message.partition()].setdefault(message.offset(), message.value())
                if known != message.value():
                    self._crew.wrong.append(f"two values at {message.partition()}/{message.offset()}")
        if not ends:
            return
        try:
            stored = self._consumer.commit(
                offsets=[TopicPartition(self._crew.topic, index, end) for index, end in ends.items()],
                asynchronous=False,
            )
        except KafkaException as error:
            self._crew.refused.append(str(error))
            return
        with self._crew.lock:
            for place in stored or ():
                if place.error is None:
                    self._crew.commits += 1
                    self._crew.committed[place.partition] = max(self._crew.committed[place.partition], place.offset)


class Watch(Client):
    """Asks for the group's offsets all the time: none may be below one acknowledged, or seen, before the question."""

    def __init__(self, crew: Crew) -> None:
        super().__init__("watch")
        self._crew = crew
        self._consumer = crew.consumer()
        self.looks = 0

    def work(self) -> None:
        try:
            while not self.stopping:
                self.look()
                time.sleep(0.2)
        finally:
            self._consumer.close()

    def look(self) -> None:
        with self._crew.lock:
            before = dict(self._crew.committed)
        try:
            found = self._consumer.committed(self._crew.places(), timeout=5)
        except KafkaException:
            return
        self.looks += 1
        for place in found:
            offset = max(place.offset, 0)
            if place.error is None and offset < before.get(place.partition, 0):
                self._crew.wrong.append(f"offset of {place.partition} fell from {before[place.partition]} to {offset}")
            with self._crew.lock:
                self._crew.committed[place.partition] = max(self._crew.committed[place.partition], offset)


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}"
        time.sleep(0.1)
