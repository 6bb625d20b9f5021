"""Consumer groups: the classic protocol's state machine, and the coordinator that runs it under a lease per group."""

from lakestream.kafka.groups.coordinator import GroupCoordinator
from lakestream.kafka.groups.model import Join, Joined, JoinedMember, Protocol, Sync, Synced
from lakestream.kafka.groups.state import Group, State

__all__ = ["Group", "GroupCoordinator", "Join", "Joined", "JoinedMember", "Protocol", "State", "Sync", "Synced"]
