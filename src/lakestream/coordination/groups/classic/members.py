"""One member of a group, and what members agree on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol as Seam

from lakestream.coordination.groups.model import Answer, Protocol, SyncAnswer


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Sequence[Protocol]
    deadline_ms: float
    """When it is taken for dead, unless it waits for an answer."""
    assignment: bytes = b""
    joining: Answer | None = None
    syncing: SyncAnswer | None = None
    synced: bool = False
    seated: bool = False
    """It is part of the present generation, and not only on its way into the next."""

    @property
    def waits(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")


class Speaking(Seam):
    """Whoever supports some protocols."""

    @property
    def protocols(self) -> Sequence[Protocol]: ...


def common_protocols(members: Iterable[Speaking]) -> set[str]:
    """The protocols that all of them support."""
    supported = [{protocol.name for protocol in member.protocols} for member in members]
    return set.intersection(*supported) if supported else set()


def elect_protocol(leader: Member, members: Iterable[Member]) -> str:
    """Each member votes for the first of its protocols that all support; the leader's order breaks ties.

    There is one: nobody may join a group with which it has no protocol in common."""
    everyone = list(members)
    common = common_protocols(everyone)
    votes = {protocol.name: 0 for protocol in leader.protocols if protocol.name in common}
    for member in everyone:
        votes[next(protocol.name for protocol in member.protocols if protocol.name in common)] += 1
    return max(votes, key=lambda name: votes[name])
