"""What an operator may set about the Kafka door: text and numbers, no components."""

import msgspec

MIB = 1024 * 1024


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consumer groups, classic protocol."""

    initial_rebalance_delay_ms: int = 250
    """How long the first join of an empty group waits for others."""
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_members: int = 10_000
    max_metadata_bytes: int = 4_096
    """The largest text a client may keep with a committed offset."""
    lease_ttl_ms: int = 5_000
    """After a coordinator dies, its groups wait at most this long for another."""
    idle_release_ms: int = 60_000
    """A group without members gives its lease back after this time."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """Offsets of a group without members go this long after the last one left, or after they were committed. Kafka's
    `offsets.retention.minutes`."""
    sweep_interval_ms: int = 600_000
    """How often a broker looks for what has lapsed."""
    max_swept_groups: int = 1_000
    """The most groups that one look takes in; the next goes on behind them."""


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_frame_bytes: int = 100 * MIB
    """A request that says it is larger closes its connection."""
    max_in_flight: int = 1024
    """Requests of one connection that wait for an answer; beyond it, the socket is not read. librdkafka sends one for
    each partition: to thousands of partitions it writes so many with each flush."""
    max_reads_in_flight: int = 4
    """Fetches of one connection that are read side by side: their answers are held until earlier ones are written."""
    write_high_water_bytes: int = 4 * MIB
    """Answers waiting for a slow reader; beyond it, the connection takes no further request."""
    receive_bytes: int = 64 * MIB
    """What requests of 64 KiB to 4 MiB may hold while they arrive, and once more for larger ones."""
    frame_stall_ms: int = 30_000
    """A request of which no further byte arrives for this time closes its connection; so does one that needs longer
    than this and a second for each 64 KiB of its size. While others wait for the memory that it holds, it may not stay
    below 64 KiB a second for one second."""
    idle_connection_ms: int = 600_000
    max_fetch_bytes: int = 55 * MIB
    """The most one fetch answers, whatever the client asks for."""
    max_fetch_wait_ms: int = 60_000
    num_partitions: int = 1
    """Partitions of a topic whose creator did not say."""
    max_partitions: int = 10_000
    """The most partitions one topic may be created with."""
    auto_create_topics: bool = True
    groups: GroupSettings = GroupSettings()
