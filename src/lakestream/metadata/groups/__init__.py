"""What is stored of a group, in one shard per group: its generation, its members with their assignments, its committed
offsets."""

from lakestream.metadata.groups.model import (
    CommittedOffset,
    GroupState,
    Phase,
    StoredGroup,
    StoredMember,
    lease_address,
)
from lakestream.metadata.groups.reading import (
    Contents,
    committed_offsets,
    is_stored,
    last_holder,
    lease_holder,
    names_from,
    read_contents,
    stored_groups,
)
from lakestream.metadata.groups.rows import GroupRows, StaleGeneration

__all__ = [
    "CommittedOffset",
    "Contents",
    "GroupRows",
    "GroupState",
    "Phase",
    "StaleGeneration",
    "StoredGroup",
    "StoredMember",
    "committed_offsets",
    "is_stored",
    "last_holder",
    "lease_address",
    "lease_holder",
    "names_from",
    "read_contents",
    "stored_groups",
]
