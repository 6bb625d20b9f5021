"""What one request of a member asks of a partition, and what becomes of the row for it. Pure, but for what it remembers
of itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lakestream.coordination.settings import GroupSettings
from lakestream.coordination.shares.acquiring import acquire
from lakestream.coordination.shares.model import Ack, AckOutcome, Acquired, Asked, LocatedBatch, ShareRules
from lakestream.coordination.shares.partition import SharePartition
from lakestream.coordination.shares.ranges import acknowledge, advanced, lapsed, released
from lakestream.metadata.shares import ShareState
from lakestream.records import BatchCompression


@dataclass(frozen=True, slots=True)
class ShareReader:
    """A member with a request. `is_exact`: it wants no more than `max_records`, even if that ends within a batch."""

    member: str
    settings: GroupSettings
    max_records: int = 0
    max_bytes: int = 0
    is_exact: bool = False
    rules: ShareRules = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", ShareRules.of(self.settings))

    @property
    def committed(self) -> bool:
        return self.settings.share_isolation == "read_committed"


class ShareOutcome(NamedTuple):
    """What came of a change. `ack`: None if nothing was acknowledged."""

    ack: AckOutcome | None
    acquired: Sequence[Acquired] = ()


@dataclass(slots=True)
class AskedPartition:
    """A partition that a request is about. `is_new`: in this session for the first time, so that whatever the member
    had of it before is free: it knows nothing of it any more."""

    asked: Asked
    live: SharePartition
    compression: BatchCompression | None = None
    acks: Sequence[Ack] = ()
    is_new: bool = False

    @property
    def is_due(self) -> bool:
        """There is something to say of the row, whatever is read."""
        return bool(self.acks) or self.is_new

    def is_told(self) -> None:
        self.acks, self.is_new = (), False

    def prepared(self, state: ShareState, reader: ShareReader, now_ms: int) -> tuple[ShareState, AckOutcome | None]:
        """The row as it is before anything is given."""
        state = lapsed(state, reader.rules, now_ms)
        outcome = None
        if self.acks:
            state, outcome = acknowledge(state, reader.member, self.acks, reader.rules, now_ms)
        if self.is_new:
            state = released(state, reader.member, reader.rules)
        return state, outcome

    def given(
        self,
        state: ShareState,
        reader: ShareReader,
        now_ms: int,
        batches: Sequence[LocatedBatch],
        read_from: int,
        max_records: int,
        log_start: int,
    ) -> tuple[ShareState, ShareOutcome]:
        """The row once the member was given what it may have of these batches."""
        state, outcome = self.prepared(state, reader, now_ms)
        state, acquired = acquire(
            advanced(state, log_start),
            reader.member,
            batches,
            read_from,
            max_records,
            reader.rules,
            now_ms,
            is_exact=reader.is_exact,
        )
        return state, ShareOutcome(outcome, acquired)
