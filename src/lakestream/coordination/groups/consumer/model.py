"""What members of the newer protocol say and hear. Data only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from uuid import UUID

from lakestream.coordination.groups.model import GroupError

Partitions = Mapping[UUID, frozenset[int]]
"""Of which topics which partitions. No topic is there without partitions."""
NOTHING: Final[Partitions] = MappingProxyType({})

JOINS: Final = 0
"""The epoch of a member that begins, or begins again."""
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
"""A static member that keeps its place until its session ends."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat. None: unchanged since the last one."""

    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: Sequence[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    gets_id: bool = False
    """Who joins without an id is given one."""
    may_describe: Callable[[str], bool] = lambda _: True
    """Topics that a pattern finds: those that the member may know of."""

    @property
    def is_full(self) -> bool:
        """It says everything, and is to hear everything."""
        if self.epoch == JOINS:
            return True
        subscribes = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms is not None and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True)
class Beaten:
    """The answer. `assigned` is None when there is nothing new to hear."""

    error: GroupError
    member_id: str = ""
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None
    message: str = ""
