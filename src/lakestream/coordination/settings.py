"""What an operator may set about coordination: text and numbers, no components."""

from typing import Literal

import msgspec


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consumer groups of both protocols."""

    initial_rebalance_delay_ms: int = 250
    """How long the first join of an empty group waits for others."""
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_members: int = 10_000
    max_metadata_bytes: int = 4_096
    """The largest text a client may keep with a committed offset."""
    consumer_session_timeout_ms: int = 45_000
    """After how long without a heartbeat a member of the newer protocol is out. Kafka's
    `group.consumer.session.timeout.ms`; the coordinator decides, not the member."""
    consumer_heartbeat_interval_ms: int = 5_000
    """How often members of the newer protocol are asked to be heard of."""
    consumer_max_members: int = 10_000
    consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = "bidirectional"
    """Whether a group with members may go over to the other protocol."""
    share_session_timeout_ms: int = 45_000
    """After how long without a heartbeat a member of a share group is out."""
    share_heartbeat_interval_ms: int = 5_000
    """How often members of share groups are asked to be heard of."""
    share_max_members: int = 200
    share_record_lock_ms: int = 30_000
    """For so long a member of a share group has a record for itself."""
    share_delivery_limit: int = 5
    """How often a share group delivers a record before it gives it up."""
    share_max_record_locks: int = 2_000
    """How many records of a partition may be on their way in a share group, from the oldest that is not done with."""
    share_max_sessions: int = 2_000
    """How many share sessions a broker keeps."""
    share_auto_offset_reset: str = "latest"
    """Where share groups begin: `latest`, `earliest`, or `by_duration:` and a duration as ISO 8601 writes it."""
    share_isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    share_renewal: bool = True
    """Whether members of share groups may renew the locks of what they have."""
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


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transactions, by Kafka's names where it has them."""

    max_timeout_ms: int = 900_000
    """The longest time-out that a producer may ask for. Kafka's `transaction.max.timeout.ms`."""
    sweep_interval_ms: int = 5_000
    """How often a broker looks for transactions that are open for too long, or whose end somebody did not finish.
    Kafka's `transaction.abort.timed.out.transaction.cleanup.interval.ms` (10 s there)."""
    id_expiration_ms: int = 7 * 24 * 3_600_000
    """A transactional id that nobody uses for so long is forgotten. Kafka's `transactional.id.expiration.ms`."""
    expiration_interval_ms: int = 600_000
    """How often a broker looks for such ids."""
    max_swept_ids: int = 1_000
    """The most ids that one such look takes in; the next goes on behind them."""
