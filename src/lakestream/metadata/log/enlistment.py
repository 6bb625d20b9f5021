"""Who may append to a transaction: the port that a commit asks.

A partition is enlisted before the first batch of a transaction enters its log, and whoever ends the transaction
rewrites the head of every enlisted partition. So an append that reads the head, then hears that its transaction is open
and the partition enlisted, and then swaps that very head, lands before the marker or not at all.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from lakestream.model import StreamPartition

NOT_ENLISTED: Final = "not-enlisted"
"""There is no such transaction that is open and has the partition."""
CONCURRENT: Final = "concurrent-transaction"
"""The transaction before it has not ended everywhere yet: the same again later."""
STALE_EPOCH: Final = "stale-epoch"
"""The transactional id has a newer epoch."""
UNKNOWN_TRANSACTION: Final = "unknown-transactional-id"
"""There is no such id, or it has another producer."""
NOT_VERIFIED: Final = "not-verified"
"""It could not be learned: the same again later."""


class InTransaction(NamedTuple):
    """To which transaction a batch belongs. `implicit`: it enlists its partition by itself, and begins the transaction
    if none is open."""

    transactional_id: str
    implicit: bool


class Enlisted(NamedTuple):
    """The partition is in the open transaction of this number."""

    number: int


class NotEnlisted(NamedTuple):
    """`reason` is one of the above."""

    reason: str


Answer = Enlisted | NotEnlisted


class Enlistment(Protocol):
    async def enlist(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[StreamPartition],
        *,
        implicit: bool,
    ) -> Mapping[StreamPartition, Answer]:
        """`implicit`: the partitions are added to the open transaction, or begin one; else they have to be in it
        already. Raises `Unavailable` when it cannot be learned."""
        ...
