"""What those who ask about transactions are told. Data only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lakestream.metadata.transactions import Phase

STATE_NAMES: Final[Mapping[Phase, str]] = {
    "EMPTY": "Empty",
    "ONGOING": "Ongoing",
    "PREPARE_COMMIT": "PrepareCommit",
    "PREPARE_ABORT": "PrepareAbort",
    "COMPLETE_COMMIT": "CompleteCommit",
    "COMPLETE_ABORT": "CompleteAbort",
}
"""By the names that Kafka's tools show."""


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """What a list is to have; empty or None: all. `older_than_ms`: of transactions that began longer ago."""

    producer_ids: frozenset[int] = frozenset()
    states: frozenset[str] | None = None
    older_than_ms: int | None = None
