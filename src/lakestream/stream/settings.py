"""How a broker appends and serves: text and numbers only."""

import msgspec

from lakestream.frontier.settings import DiskSettings

MIB = 1024 * 1024
SMALL_FLUSH_BYTES = MIB // 4


class StreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is None depends on the bucket: see `pace_for`."""

    flush_interval_ms: int | None = None
    flush_bytes: int = 8 * MIB
    flushes_in_flight: int | None = None
    upload_deadline_ms: int = 30_000
    max_batch_bytes: int = MIB + 12
    """The largest record batch where a topic does not say: what Kafka calls `message.max.bytes`, with its default."""
    memory_budget_bytes: int = 256 * MIB
    """Requests in work and what is uploaded of them. The two caches below come on top."""
    tail_cache_bytes: int | None = None
    """What was appended lately, in the table already or not. None: a sixteenth of the memory, 128 MiB to 1 GiB."""
    history_cache_bytes: int | None = None
    """Rows of tables that are being replayed. None: a thirty-second of the memory, 128 to 512 MiB. A partition that is
    replayed takes a row group, 16 MiB as a rule, and another that is read ahead."""
    view_check_ms: int = 500
    generation_check_ms: int = 5_000
    receipt_idle_ms: int = 5_000
    predecessor_wait_ms: int = 10_000
    """How long an idempotent producer's batch is asked to come again while the one before it is not in the log. Then
    its epoch is closed. Longer than a client takes to send again what another broker did not answer."""
    broker_ttl_ms: int = 6_000
    """How long clients are still sent to a broker that gives no sign of life. It gives four within this time: each is
    a lease renewed and three reads."""


def tail_cache_bytes(settings: StreamSettings, memory_bytes: int) -> int:
    chosen = settings.tail_cache_bytes
    return min(max(memory_bytes // 16, 128 * MIB), 1024 * MIB) if chosen is None else chosen


def history_cache_bytes(settings: StreamSettings, memory_bytes: int) -> int:
    chosen = settings.history_cache_bytes
    return min(max(memory_bytes // 32, 128 * MIB), 512 * MIB) if chosen is None else chosen


class Pace(msgspec.Struct, frozen=True):
    """How long appends wait for company: `interval_ms`, or `loaded_interval_ms` after a flush that was not small. How
    many flushes are under way at once. `is_eager`: after a small flush the wait ends as soon as as many appends have
    come as it had. Clients that wait for their answers then have all sent what they may: librdkafka's idempotent
    producer sends one partition per request and has five in flight, so every millisecond counts 2,000 times for 10,000
    partitions."""

    interval_ms: int
    loaded_interval_ms: int
    flushes_in_flight: int
    is_eager: bool


def disk_pace(settings: DiskSettings) -> Pace:
    """Of the disk profile: flushed as soon as something is there, and side by side."""
    return Pace(settings.flush_interval_ms, settings.flush_loaded_ms, settings.flushes_in_flight, True)


def pace_for(url: str, settings: StreamSettings) -> Pace:
    """A local directory takes a file in milliseconds and charges nothing: short waits, longer ones under load, and one
    flush after the other, because the larger a flush the cheaper its bytes. A bucket charges for every PUT and takes
    its time over it."""
    usual = Pace(1, 20, 1, True) if url.startswith("file://") else Pace(250, 250, 4, False)
    interval_ms, in_flight = settings.flush_interval_ms, settings.flushes_in_flight
    return Pace(
        usual.interval_ms if interval_ms is None else interval_ms,
        usual.loaded_interval_ms if interval_ms is None else interval_ms,
        usual.flushes_in_flight if in_flight is None else in_flight,
        usual.is_eager and interval_ms is None,
    )
