"""Which records a member is given: those that wait to be delivered again first, then new ones. Pure, by batches and
ranges: no record is looked at.

Whole batches are given, even if that is more than was asked for, unless the member wants no more. A record before its
last delivery comes alone: if it is what makes members fail, no other is lost over it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lakestream.coordination.shares.model import Acquired, LocatedBatch, ShareRules
from lakestream.coordination.shares.ranges import Walk, tidy
from lakestream.metadata.shares import Delivery, ShareRange, ShareState


class Given(NamedTuple):
    state: ShareState
    acquired: Sequence[Acquired]


def wanted_from(state: ShareState, rules: ShareRules) -> int | None:
    """The first offset that may be given now; None: there is none until something changes."""
    for each in state.ranges:
        if each.state == Delivery.AVAILABLE:
            return each.first
    return state.end if state.end - state.start < rules.most_in_flight else None


def acquire(
    state: ShareState,
    member: str,
    batches: Sequence[LocatedBatch],
    read_from: int,
    max_records: int,
    rules: ShareRules,
    now_ms: int,
    *,
    is_exact: bool,
) -> Given:
    """Of what was read from an offset on: `batches`, in order. Offsets among them that have no record, and those whose
    records nobody may have, are done with. Where the group is further back than that, somebody has set it back."""
    if state.end < read_from:
        return Given(state, ())
    giving = _Giving(state, member, max_records, rules, now_ms + rules.lock_ms, is_exact=is_exact)
    for batch in batches:
        if not giving.take(batch):
            break
    return Given(giving.state(), tuple(giving.acquired))


class _Giving:
    def __init__(
        self, state: ShareState, member: str, max_records: int, rules: ShareRules, until_ms: int, *, is_exact: bool
    ) -> None:
        self.acquired: list[Acquired] = []
        self._walk = Walk(state.ranges)
        self._start = state.start
        self._member = member
        self._left = max_records
        self._rules = rules
        self._until_ms = until_ms
        self._is_exact = is_exact
        self._is_over = max_records <= 0

    def state(self) -> ShareState:
        """What was never delivered is not remembered."""
        ranges = self._walk.all()
        while ranges and ranges[-1].state == Delivery.AVAILABLE and not ranges[-1].deliveries:
            ranges.pop()
        return tidy(self._start, ranges)

    def take(self, batch: LocatedBatch) -> bool:
        """False: that is all for now."""
        end = self._walk.end(self._start)
        if batch.end > end:
            if end - self._start >= self._rules.most_in_flight:
                return False
            if batch.first > end:
                self._walk.extend(ShareRange(end, batch.first, Delivery.ARCHIVED, 0))
            self._walk.extend(ShareRange(max(end, batch.first), batch.end, Delivery.AVAILABLE, 0))
        for piece in self._walk.within(batch.first, batch.end):
            if piece.state != Delivery.AVAILABLE or self._is_over:
                self._walk.put(piece)
            elif not batch.is_visible:
                self._walk.put(ShareRange(piece.first, piece.end, Delivery.ARCHIVED, piece.deliveries))
            else:
                self._give(piece)
        self._is_over |= self._left <= 0
        return not self._is_over

    def _give(self, piece: ShareRange) -> None:
        """As much of it as may be given; the rest stays."""
        deliveries, end = piece.deliveries + 1, piece.end
        is_last = piece.deliveries > 0 and deliveries >= self._rules.most_deliveries
        if is_last:
            end = piece.first if self.acquired else piece.first + 1
        elif self._is_exact:
            end = min(end, piece.first + self._left)
        if end > piece.first:
            self._walk.put(ShareRange(piece.first, end, Delivery.ACQUIRED, deliveries, self._member, self._until_ms))
            self._tell(Acquired(piece.first, end, deliveries))
            self._left -= end - piece.first
        if end < piece.end:
            self._walk.put(ShareRange(end, piece.end, Delivery.AVAILABLE, piece.deliveries))
        self._is_over |= is_last or (self._is_exact and self._left <= 0)

    def _tell(self, given: Acquired) -> None:
        if self.acquired and self.acquired[-1][1:] == (given.first, given.deliveries):
            given = Acquired(self.acquired.pop().first, given.end, given.deliveries)
        self.acquired.append(given)


def overlapping(batches: Sequence[LocatedBatch], acquired: Sequence[Acquired]) -> list[LocatedBatch]:
    """The batches that have some of these records."""
    found, at = [], 0
    for batch in batches:
        while at < len(acquired) and acquired[at].end <= batch.first:
            at += 1
        if at == len(acquired):
            break
        if acquired[at].first < batch.end:
            found.append(batch)
    return found
