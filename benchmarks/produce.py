"""Produce beside Kafka: throughput, and records per second of the broker's CPU.

Kafka's own performance tool, six partitions, acks=all. Client and broker share the machine, so the servers take turns
round by round, after rounds that do not count: Kafka's JIT needs them.
"""

from statistics import median

from benchmarks import memory_warmth
from benchmarks.perf_tools import produce
from benchmarks.result import QUICK, Result, versus
from benchmarks.servers import Server, kafka, lakestream

PARTITIONS = 6
LOADS = {1000: 40_000 if QUICK else 500_000, 100: 200_000 if QUICK else 2_500_000}
"""Record size in bytes: records in one round."""
WARM_UP_ROUNDS = 1 if QUICK else 2
ROUNDS = 1 if QUICK else 5


def _round(server: Server, topic: str, size_bytes: int) -> tuple[float, float]:
    """Records per second, and per second of the server's CPU."""
    before = server.cpu_seconds()
    rate = produce(server, topic, LOADS[size_bytes], size_bytes)
    return rate, LOADS[size_bytes] / (server.cpu_seconds() - before)


def run() -> list[Result]:
    results: list[Result] = []
    with lakestream() as ours, kafka() as peer:
        for size_bytes in LOADS:
            memory_warmth.touch()
            topic = f"produce-{size_bytes}"
            measured: dict[str, list[tuple[float, float]]] = {ours.name: [], peer.name: []}
            for server in (ours, peer):
                server.create_topic(topic, PARTITIONS)
            for number in range(WARM_UP_ROUNDS + ROUNDS):
                for server in (ours, peer):
                    figures = _round(server, topic, size_bytes)
                    if number >= WARM_UP_ROUNDS:
                        measured[server.name].append(figures)
            for server in (ours, peer):
                server.delete_topic(topic)
            our_rate, our_per_cpu = _medians(measured[ours.name])
            peer_rate, peer_per_cpu = _medians(measured[peer.name])
            label, scale = f"produce {size_bytes} B", size_bytes / 1e6
            results.append(versus(f"{label}, throughput", our_rate * scale, peer_rate * scale, "MB/s", at_least=1.2))
            results.append(versus(f"{label}, CPU", our_per_cpu, peer_per_cpu, "records/CPU s", at_least=2.5))
    return results


def _medians(rounds: list[tuple[float, float]]) -> tuple[float, float]:
    return median(rate for rate, _ in rounds), median(per_cpu for _, per_cpu in rounds)
