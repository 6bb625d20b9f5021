"""Kafka Streams with exactly_once_v2: state, changelogs and results are exactly once, whoever is killed."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.clients.committed import committed, until
from support.clients.java_programs import JavaPrograms
from support.clients.topic_settings import setting_of
from support.worlds.processes import ProcessWorld

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(420)]

QUICK = {
    "LAKESTREAM_STREAM_BROKER_TTL_MS": "3000",
    "LAKESTREAM_KAFKA_GROUPS_LEASE_TTL_MS": "1500",
    "LAKESTREAM_KAFKA_TRANSACTIONS_SWEEP_INTERVAL_MS": "500",
}
WORDS = ["espresso", "lungo", "mocha", "flat", "white", "cortado", "ristretto"]
LINES = 300
"""In each of four parts; between them somebody is killed."""
PARTITIONS = 4
WAIT_S = 120.0


def _counts(bootstrap: str, topic: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for message in committed(bootstrap, topic):
        found[message.key().decode()].append(int(message.value()))
    return found


def _are_exactly(counts: dict[str, list[int]], written: Counter[str]) -> bool:
    return counts == {word: list(range(1, times + 1)) for word, times in written.items()}


def test_words_are_counted_exactly_once(
    cluster: Callable[..., ProcessWorld], programs: Callable[..., JavaPrograms], kafka_libs: str
) -> None:
    brokers = cluster(brokers=2, environment=QUICK)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in ("lines", "counts", "hourly")]).values():
        made.result(20)
    streams = programs(kafka_libs, "kafka-streams-*", "rocksdbjni-*")
    streams.compile("WordCount.java")
    instances = [streams.start("WordCount", brokers.bootstrap, f"state-{index}") for index in range(2)]
    for instance in instances:
        instance.wait_for("RUNNING", WAIT_S)

    producer = Producer({"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True, "log_level": 0})
    numbers = random.Random(7)
    written: Counter[str] = Counter()
    # All at one time: the windows of an hour are then one.
    at_ms = int(time.time() * 1000)
    for part in range(4):
        for _ in range(LINES):
            line = numbers.choices(WORDS, k=3)
            written.update(line)
            producer.produce("lines", " ".join(line), partition=numbers.randrange(PARTITIONS), timestamp=at_ms)
        assert producer.flush(60) == 0
        if part == 0:
            until(lambda: bool(_counts(brokers.bootstrap, "counts")), WAIT_S)
            instances[0].kill()
        elif part == 1:
            # Its state is gone: it comes from the changelogs.
            instances[0] = streams.start("WordCount", brokers.bootstrap, "state-new")
            brokers.brokers[0].kill()
            brokers.start_broker(0)
        elif part == 2:
            instances[1].kill()
            instances[1] = streams.start("WordCount", brokers.bootstrap, "state-1")

    def told() -> object:
        return [instance.output[-3000:] for instance in instances], written, _counts(brokers.bootstrap, "counts")

    done = sum(written.values())
    until(lambda: sum(map(len, _counts(brokers.bootstrap, "counts").values())) >= done, WAIT_S, told)
    assert _are_exactly(_counts(brokers.bootstrap, "counts"), written), told()
    until(lambda: sum(map(len, _counts(brokers.bootstrap, "hourly").values())) >= done, WAIT_S, told)
    assert _are_exactly(_counts(brokers.bootstrap, "hourly"), written), told()
    for instance in instances:
        assert instance.stop(timeout_s=40) in (0, 143)

    names = {name for name in admin.list_topics(timeout=20).topics if name.startswith("word-count-")}
    assert len([name for name in names if name.endswith("-repartition")]) == 2
    changelogs = sorted(name for name in names if name.endswith("-changelog"))
    assert len(changelogs) == 2
    policies = {setting_of(admin, name, "cleanup.policy") for name in changelogs}
    assert policies == {"compact", "compact,delete"}
    last = {
        message.key(): int.from_bytes(message.value(), "big") for message in committed(brokers.bootstrap, changelogs[0])
    }
    assert {key.decode(): count for key, count in last.items()} == written
