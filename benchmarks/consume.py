"""Consume the tail beside Kafka: what was just produced, read from the start of the topic by librdkafka."""

from statistics import median

from benchmarks.clients import consume, produce
from benchmarks.result import QUICK, Result, versus
from benchmarks.servers import Server, kafka, lakestream

PARTITIONS = 6
SIZE_BYTES = 1000
RECORDS = 40_000 if QUICK else 120_000
WARM_UP_ROUNDS = 1 if QUICK else 3
ROUNDS = 1 if QUICK else 7


def _rate(server: Server) -> float:
    return RECORDS * SIZE_BYTES / 1e6 / consume(server, "tail", PARTITIONS, RECORDS)


def run() -> list[Result]:
    with lakestream() as ours, kafka() as peer:
        rates: dict[str, list[float]] = {ours.name: [], peer.name: []}
        for server in (ours, peer):
            server.create_topic("tail", PARTITIONS)
            produce(server, "tail", PARTITIONS, RECORDS, SIZE_BYTES)
        for number in range(WARM_UP_ROUNDS + ROUNDS):
            for server in (ours, peer):
                rate = _rate(server)
                if number >= WARM_UP_ROUNDS:
                    rates[server.name].append(rate)
    our_rate, peer_rate = median(rates[ours.name]), median(rates[peer.name])
    return [versus("tail consume 1000 B, throughput", our_rate, peer_rate, "MB/s", at_least=0.7)]
