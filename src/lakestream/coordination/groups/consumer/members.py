"""One member of a group of the newer protocol, and what it has and is to have."""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from lakestream.coordination.groups.consumer.model import LEAVES_FOR_A_WHILE, Partitions
from lakestream.coordination.groups.model import Protocol

NEVER: Final = float("inf")


class MemberState(enum.Enum):
    STABLE = "STABLE"
    REVOKING = "REVOKING"
    """It was told to give partitions up and has not said yet that it did."""
    WAITING = "WAITING"
    """Some of its partitions are still another's."""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member brought that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: Sequence[Protocol]


@dataclass(slots=True)
class ConsumerMember:
    """Invariant: `assigned` and `revoking` have nothing in common, and nobody else has a partition that is in one of
    them."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None = None
    rebalance_timeout_ms: int = 0
    topics: Sequence[str] = ()
    pattern: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    """What it has, or may take when it hears of it."""
    revoking: Partitions = field(default_factory=dict)
    target: Partitions = field(default_factory=dict)
    """What it is to have in the end."""
    classic: ClassicSide | None = None
    deadline_ms: float = NEVER
    """When its session ends."""
    revoke_until_ms: float = NEVER
    join_until_ms: float = NEVER
    sync_until_ms: float = NEVER

    @property
    def is_away(self) -> bool:
        return self.epoch == LEAVES_FOR_A_WHILE

    def move_to(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch

    def has(self) -> Iterator[tuple[UUID, int]]:
        """Every partition that nobody else may be given."""
        for partitions in (self.assigned, self.revoking):
            yield from each_of(partitions)


def each_of(partitions: Partitions) -> Iterator[tuple[UUID, int]]:
    for topic_id, indexes in partitions.items():
        for index in indexes:
            yield topic_id, index


def gathered(pairs: Iterator[tuple[UUID, int]]) -> Partitions:
    found: dict[UUID, set[int]] = {}
    for topic_id, index in pairs:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def is_within(part: Partitions | None, whole: Partitions) -> bool:
    """None is not known to be."""
    if part is None:
        return False
    return all(indexes <= whole.get(topic_id, frozenset()) for topic_id, indexes in part.items())
