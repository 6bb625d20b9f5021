"""Consumer groups: the state machines of the classic and the newer protocol, and the coordinator that runs them under a
lease per group."""

from lakestream.coordination.groups.classic.state import Group, State
from lakestream.coordination.groups.consumer.group import ConsumerGroup, ConsumerState
from lakestream.coordination.groups.consumer.model import Beat, Beaten
from lakestream.coordination.groups.coordinator import GroupCoordinator
from lakestream.coordination.groups.groups import Groups
from lakestream.coordination.groups.model import GroupError, Join, Joined, JoinedMember, Protocol, Sync, Synced
from lakestream.coordination.groups.share.group import ShareGroup

__all__ = [
    "Beat",
    "Beaten",
    "ConsumerGroup",
    "ConsumerState",
    "Group",
    "GroupCoordinator",
    "GroupError",
    "Groups",
    "Join",
    "Joined",
    "JoinedMember",
    "Protocol",
    "ShareGroup",
    "State",
    "Sync",
    "Synced",
]
