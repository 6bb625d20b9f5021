"""What is seen of a broker from outside: numbers that its parts keep anyway."""

from lakestream.coordination.groups import GroupCoordinator
from lakestream.kafka.server import KafkaServer
from lakestream.metrics import ReadMetrics
from lakestream.node.storage.backends import Backends
from lakestream.node.storage.lazy import LazyTables
from lakestream.stream.engine import StreamEngine


def watch_broker(
    backends: Backends, engine: StreamEngine, coordinator: GroupCoordinator, server: KafkaServer, tables: LazyTables
) -> None:
    tail, budget, history = engine.tail_cache, engine.budget, tables.history_cache
    read = ReadMetrics(backends.registry)
    read.counter("lakestream_appended_records", "Records committed to the log.", lambda: engine.appended_records)
    read.counter("lakestream_appended_bytes", "Bytes committed to the log.", lambda: engine.appended_bytes)
    hits = {"tail": lambda: tail.hits, "history": lambda: history().hits}
    misses = {"tail": lambda: tail.misses, "history": lambda: history().misses}
    sizes = {"tail": lambda: tail.used_bytes, "history": lambda: history().size_bytes}
    read.counters("lakestream_cache_hits", "Reads that found their bytes in memory.", "cache", hits)
    read.counters("lakestream_cache_misses", "Reads that had to wait for a store.", "cache", misses)
    read.gauges("lakestream_cache_bytes", "What a cache holds.", "cache", sizes)
    read.gauge("lakestream_memory_used_bytes", "Memory of requests in work.", lambda: budget.used_bytes)
    read.gauge("lakestream_memory_limit_bytes", "What they may use before sockets wait.", lambda: budget.limit_bytes)
    answers = server.answer_budget
    read.gauge("lakestream_answers_used_bytes", "Answers that clients have not read.", lambda: answers.used_bytes)
    read.gauge("lakestream_answers_limit_bytes", "What they may use before fetches wait.", lambda: answers.limit_bytes)
    read.gauge("lakestream_kafka_connections", "Open connections of Kafka clients.", lambda: server.connections)
    read.counter(
        "lakestream_group_rebalances", "Generations begun by this broker's groups.", lambda: coordinator.rebalances
    )
