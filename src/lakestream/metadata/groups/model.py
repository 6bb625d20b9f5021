"""What the rows of a group hold, and under which keys."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import ClassVar, Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from lakestream.metadata.store import Address
from lakestream.model import StreamPartition

LEASE: Final = "lease"
STATE: Final = "state"
CLAIM: Final = "claim"
MEMBERS: Final = ("m/", "n0")
"""Range of all members' keys, `m/` of the classic and `n/` of the newer protocol ("0" is the character after "/")."""
OFFSETS: Final = ("o/", "o0")
PENDING: Final = ("p/", "p0")
"""Offsets of transactions that have not ended."""
STORED: Final = ("m/", "statf")
"""Range of members, offsets, pending offsets and state: what tells a group from a name that somebody only asked for."""
GROUPS: Final = ("group/", "group0")
"""Range of all groups' shards."""

Phase = Literal["EMPTY", "PREPARING", "COMPLETING", "STABLE", "ASSIGNING", "RECONCILING"]
Kind = Literal["classic", "consumer", "share"]
"""By the protocol that a group's members speak; the names are those that tools show."""
StoredPartitions = tuple[tuple[UUID, tuple[int, ...]], ...]
"""Of each topic some partitions, both in order."""


class GroupState(msgspec.Struct, frozen=True, array_like=True):
    """The generation that members may have seen; a coordinator goes on from it and never reuses one. `changed_ms` is
    since when generation and phase are what they are. In a group of the newer protocol the generation is the group's
    epoch and the protocol its assignor; `assignment_epoch` is the epoch that members' targets were made in, for topics
    as `digest` says."""

    stored_format: ClassVar[int] = 4

    generation: int = 0
    protocol_type: str = ""
    phase: Phase = "EMPTY"
    protocol: str | None = None
    leader: str = ""
    changed_ms: int = 0
    kind: Kind = "classic"
    assignment_epoch: int = 0
    digest: str = ""


class StoredMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of the present generation. `protocols`: the names it supports, with its own data for each."""

    stored_format: ClassVar[int] = 3

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class StoredConsumer(msgspec.Struct, frozen=True, array_like=True):
    """A member of a group of the newer protocol. `classic`: its session time-out and protocols, if it speaks the
    classic one."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    pattern: str
    assignor: str | None
    epoch: int
    previous_epoch: int
    state: str
    assigned: StoredPartitions
    revoking: StoredPartitions
    target: StoredPartitions
    classic: tuple[int, tuple[tuple[str, bytes], ...]] | None


class StoredGroup(NamedTuple):
    state: GroupState
    members: Sequence[StoredMember] = ()
    consumers: Sequence[StoredConsumer] = ()
    """The members of a group of the newer protocol."""


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """The next offset to read, as a consumer committed it. `turn`: of one that a transaction committed the version of
    the row in which it was pending, by which it comes before or after other commits. 0: the row's own version says it.
    """

    stored_format: ClassVar[int] = 3

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    turn: int = 0


def lease_address(group: str) -> Address:
    return Address(shard_of(group), LEASE)


def shard_of(group: str) -> str:
    return f"{GROUPS[0]}{group}"


def member_key(member_id: str) -> str:
    """Short, whatever name the client has given itself: the member's id begins with it."""
    return f"m/{blake2b(member_id.encode(), digest_size=16).hexdigest()}"


def consumer_key(member_id: str) -> str:
    return f"n/{blake2b(member_id.encode(), digest_size=16).hexdigest()}"


def offset_key(partition: StreamPartition) -> str:
    return f"o/{partition.topic_id.hex}/{partition.index:08d}"


def partition_of(key: str) -> StreamPartition:
    _, topic, index = key.split("/")
    return StreamPartition(UUID(topic), int(index))
