"""Thousands of topics: created, written to (one record each) and deleted in one go, through librdkafka.

Each step must take time in proportion to their number, so what is compared is the cost of one topic among few and
among many.
"""

import time
from collections.abc import Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.result import QUICK, Result, stays_under, with_curve
from benchmarks.servers import Server, lakestream

COUNTS = (100, 200) if QUICK else (500, 1_000, 2_000, 5_000)
WAIT_S = 120.0


def run() -> list[Result]:
    seconds: dict[str, list[tuple[float, float]]] = {"create": [], "produce": [], "delete": []}
    for count in COUNTS:
        with lakestream() as server:
            for step, took_s in _round(server, count).items():
                seconds[step].append((count, round(took_s, 2)))
    return [_result(step, points) for step, points in seconds.items()]


def _result(step: str, points: list[tuple[float, float]]) -> Result:
    count, took_s = points[-1]
    result = stays_under(f"{step} {count:,.0f} topics, each", took_s / count * 1000, "ms", at_most=3)
    title = f"Seconds to {step} so many topics at once"
    return with_curve(result, f"topics-{step}", title, x="topics", y="seconds", points=points)


def _round(server: Server, count: int) -> dict[str, float]:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    names = [f"topic-{number:05d}" for number in range(count)]
    started = time.monotonic()
    _all(admin.create_topics([NewTopic(name, 1, 1) for name in names], request_timeout=WAIT_S))
    created = time.monotonic()
    _produce(server, names)
    produced = time.monotonic()
    _all(admin.delete_topics(names, request_timeout=WAIT_S))
    return {"create": created - started, "produce": produced - created, "delete": time.monotonic() - produced}


def _all(futures: Mapping[str, "Future[None]"]) -> None:
    for future in futures.values():
        future.result()


def _produce(server: Server, names: list[str]) -> None:
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5, "log_level": 0})
    for name in names:
        producer.produce(name, b"v", on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    if producer.flush(WAIT_S) or failed:
        raise SystemExit(f"{len(failed)} of {len(names)} records were not acknowledged: {failed[:1]}")
