"""What an operator may set about the Kafka door: text and numbers, no components."""

import msgspec

from lakestream.coordination.settings import GroupSettings, TransactionSettings

MIB = 1024 * 1024


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
    answer_bytes: int = 128 * MIB
    """What answers may hold until clients have read them; beyond it, fetches wait. A client that reads nothing for five
    seconds meanwhile is cut off."""
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
    transactions: TransactionSettings = TransactionSettings()
