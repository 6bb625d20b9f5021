"""What is stored of a group, in one shard per group: its generation, its members with their assignments, its committed
offsets."""

from lakestream.metadata.groups.model import (
    CommittedOffset,
    GroupState,
    Kind,
    Phase,
    StoredConsumer,
    StoredGroup,
    StoredMember,
    StoredPartitions,
    lease_address,
)
from lakestream.metadata.groups.pending import PendingOffsets, end_in_group, pending_partitions
from lakestream.metadata.groups.reading import (
    Contents,
    committed_offsets,
    is_stored,
    last_holder,
    lease_holder,
    names_from,
    read_contents,
    stored_group,
    stored_groups,
)
from lakestream.metadata.groups.rows import GroupRows, StaleGeneration

__all__ = [
    "CommittedOffset",
    "Contents",
    "GroupRows",
    "GroupState",
    "Kind",
    "PendingOffsets",
    "Phase",
    "StaleGeneration",
    "StoredConsumer",
    "StoredGroup",
    "StoredMember",
    "StoredPartitions",
    "committed_offsets",
    "end_in_group",
    "is_stored",
    "last_holder",
    "lease_address",
    "lease_holder",
    "names_from",
    "pending_partitions",
    "read_contents",
    "stored_group",
    "stored_groups",
]
