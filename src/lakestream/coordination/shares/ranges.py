"""What becomes of a share partition's records, range by range. Pure: a state in, another out.

    available ──acquired──► acquired ──accepted──► acknowledged
        ▲                      │ └────rejected───► archived
        └──released, lapsed────┘ (archived after the last delivery that a record may have)

A record is given to one member at a time. What is acknowledged or archived is never given again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from lakestream.coordination.shares.model import Ack, AckError, AckOutcome, AckType, ShareRules
from lakestream.metadata.shares import Delivery, ShareRange, ShareState

DONE: Final = (Delivery.ACKNOWLEDGED, Delivery.ARCHIVED)
_TYPES: Final = frozenset(AckType)


class Acknowledged(NamedTuple):
    state: ShareState
    outcome: AckOutcome


def tidy(start: int, ranges: Iterable[ShareRange]) -> ShareState:
    """Without what is done with at the front, and with neighbours that are alike put together."""
    kept: list[ShareRange] = []
    for each in ranges:
        if not kept and each.state in DONE:
            start = each.end
        elif kept and _alike(kept[-1], each):
            kept[-1] = part(kept[-1], kept[-1].first, each.end)
        else:
            kept.append(each)
    return ShareState(start, tuple(kept))


def _alike(one: ShareRange, other: ShareRange) -> bool:
    if one.state != other.state:
        return False
    if one.state in DONE:
        return True
    return (one.deliveries, one.member, one.until_ms) == (other.deliveries, other.member, other.until_ms)


class Walk:
    """Through ranges from front to back, once, however many parts of them are taken out and put back."""

    def __init__(self, ranges: Sequence[ShareRange]) -> None:
        self._passed: list[ShareRange] = []
        self._left = list(reversed(ranges))

    def within(self, first: int, end: int) -> Iterator[ShareRange]:
        """Takes out what lies in [first, end), in order. Whoever takes a piece puts something in its place at once, or
        nothing."""
        while self._left and self._left[-1].first < end:
            each = self._left.pop()
            if each.end <= first:
                self.put(each)
                continue
            if each.first < first:
                self.put(part(each, each.first, first))
            if each.end > end:
                self._left.append(part(each, end, each.end))
            yield part(each, max(each.first, first), min(each.end, end))

    def put(self, each: ShareRange) -> None:
        last = self._passed[-1] if self._passed else None
        if last is not None and last.end == each.first and _alike(last, each):
            self._passed[-1] = part(last, last.first, each.end)
        else:
            self._passed.append(each)

    def extend(self, each: ShareRange) -> None:
        """Behind all others."""
        self._left.insert(0, each)

    def end(self, start: int) -> int:
        """Of all ranges; `start` if there is none."""
        last = self._left[:1] or self._passed[-1:]
        return last[0].end if last else start

    def all(self) -> list[ShareRange]:
        return [*self._passed, *reversed(self._left)]


def part(each: ShareRange, first: int, end: int) -> ShareRange:
    if (first, end) == (each.first, each.end):
        return each
    return ShareRange(first, end, each.state, each.deliveries, each.member, each.until_ms)


def freed(each: ShareRange, rules: ShareRules) -> ShareRange:
    """Nobody has it any more: it is to be delivered again, unless it was often enough."""
    state = Delivery.ARCHIVED if each.deliveries >= rules.most_deliveries else Delivery.AVAILABLE
    return ShareRange(each.first, each.end, state, each.deliveries)


def _mapped(state: ShareState, change: Callable[[ShareRange], ShareRange]) -> ShareState:
    changed = tuple(map(change, state.ranges))
    return state if changed == state.ranges else tidy(state.start, changed)


def lapsed(state: ShareState, rules: ShareRules, now_ms: int) -> ShareState:
    """Locks whose time is over are open."""
    return _mapped(
        state,
        lambda each: freed(each, rules) if each.state == Delivery.ACQUIRED and each.until_ms <= now_ms else each,
    )


def released(state: ShareState, member: str, rules: ShareRules) -> ShareState:
    """The member is gone: what it had is free."""
    return _mapped(
        state,
        lambda each: freed(each, rules) if each.state == Delivery.ACQUIRED and each.member == member else each,
    )


def advanced(state: ShareState, start: int) -> ShareState:
    """The log begins there: nothing before is to be had."""
    if start <= state.start:
        return state
    return tidy(start, [part(each, max(each.first, start), each.end) for each in state.ranges if each.end > start])


def next_lapse_ms(state: ShareState) -> int | None:
    return min((each.until_ms for each in state.ranges if each.state == Delivery.ACQUIRED), default=None)


def open_records(state: ShareState, end_offset: int) -> int:
    """How many of the log's records, up to its end, are not done with."""
    done = sum(each.end - each.first for each in state.ranges if each.state in DONE)
    return max(0, end_offset - state.start - done)


def fault_of(acks: Sequence[Ack], *, renews: bool) -> str:
    """What is wrong with acknowledgements whatever the records' state; empty: nothing."""
    before = -1
    for first, last, types in acks:
        if first > last or first < before:
            return f"offsets {first} to {last} come after {before}"
        if not types or len(types) not in (1, last - first + 1):
            return f"{len(types)} types for offsets {first} to {last}"
        if not _TYPES.issuperset(types):
            return f"types are 0 to {max(_TYPES)}"
        if AckType.RENEW in types and not renews:
            return "locks are renewed by requests that say so"
        before = last
    return ""


def acknowledge(state: ShareState, member: str, acks: Sequence[Ack], rules: ShareRules, now_ms: int) -> Acknowledged:
    """All of them or none. Of what lies before the start nothing is to be said any more."""
    walk, before = Walk(state.ranges), -1
    for first, last, types in acks:
        if first == before:
            return Acknowledged(state, AckOutcome(AckError.INVALID_STATE, f"record {first} is named twice"))
        before = last
        if last >= max(state.end, state.start):
            return Acknowledged(
                state, AckOutcome(AckError.INVALID_REQUEST, f"record {last} was not delivered to anybody")
            )
        for first_of_run, end, kind in _runs(first, last, types):
            if kind == AckType.RENEW and not rules.renews:
                return Acknowledged(state, AckOutcome(AckError.INVALID_STATE, "the group's locks are not renewed"))
            for each in walk.within(first_of_run, end):
                if each.state != Delivery.ACQUIRED or each.member != member:
                    message = f"records {each.first} to {each.end - 1} are not with this member any more"
                    return Acknowledged(state, AckOutcome(AckError.INVALID_STATE, message))
                walk.put(_acknowledged(each, kind, rules, now_ms))
    return Acknowledged(tidy(state.start, walk.all()), AckOutcome(None))


def _runs(first: int, last: int, types: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    if len(types) == 1:
        yield first, last + 1, types[0]
        return
    for kind, run in groupby(types):
        end = first + sum(1 for _ in run)
        yield first, end, kind
        first = end


def _acknowledged(piece: ShareRange, kind: int, rules: ShareRules, now_ms: int) -> ShareRange:
    if kind == AckType.RELEASE:
        return freed(piece, rules)
    if kind == AckType.RENEW:
        return msgspec.structs.replace(piece, until_ms=now_ms + rules.lock_ms)
    state = Delivery.ACKNOWLEDGED if kind == AckType.ACCEPT else Delivery.ARCHIVED
    return ShareRange(piece.first, piece.end, state, piece.deliveries)
