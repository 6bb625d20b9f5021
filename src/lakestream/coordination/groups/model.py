"""What members of a group say and hear. Data only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto


class GroupError(Enum):
    """What a member is told instead of what it asked for."""

    NONE = auto()
    INVALID_NAME = auto()
    INVALID_SESSION_TIMEOUT = auto()
    UNKNOWN_GROUP = auto()
    NOT_EMPTY = auto()
    """Somebody is in the group that was to be deleted."""
    GROUP_FULL = auto()
    INCONSISTENT_PROTOCOL = auto()
    """The member supports nothing that all others do."""
    MEMBER_ID_REQUIRED = auto()
    """The id that it was given just now: it is to join again with it."""
    UNKNOWN_MEMBER = auto()
    FENCED_INSTANCE = auto()
    """Another process has joined under the same instance id."""
    STALE_GENERATION = auto()
    REBALANCING = auto()
    """It is to join again."""
    NOT_COORDINATOR = auto()
    """Another broker has the group: it is to look for it."""
    INVALID_REQUEST = auto()
    """What it says does not fit together."""
    FENCED_EPOCH = auto()
    """It is not where it believes to be: it is to give up all its partitions and begin again."""
    STALE_EPOCH = auto()
    """It has moved on since it asked for that."""
    UNRELEASED_INSTANCE = auto()
    """Another process is in the group under the same instance id, and has not left."""
    UNKNOWN_ASSIGNOR = auto()
    INVALID_PATTERN = auto()


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way of assigning partitions that a member supports, with its own data."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Join:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[Protocol]
    id_required: bool
    """A new member is first told its id and joins again with it (v4+)."""
    skips_assignment: bool
    """A static leader that comes back may be told that nothing is to be assigned (v9+)."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    error: GroupError
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Synced:
    error: GroupError
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


Answer = Callable[[Joined], None]
SyncAnswer = Callable[[Synced], None]
