"""Consumer groups: the classic protocol's state machine, and the coordinator that runs it under a lease per group."""

from lakestream.coordination.groups.classic.state import Group, State
from lakestream.coordination.groups.coordinator import GroupCoordinator
from lakestream.coordination.groups.groups import Groups
from lakestream.coordination.groups.model import GroupError, Join, Joined, JoinedMember, Protocol, Sync, Synced

__all__ = [
    "Group",
    "GroupCoordinator",
    "GroupError",
    "Groups",
    "Join",
    "Joined",
    "JoinedMember",
    "Protocol",
    "State",
    "Sync",
    "Synced",
]
