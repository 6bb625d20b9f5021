"""Filling the gaps of a rebuilt log: offsets that were given away, and no receipt tells to what.

Sections without receipt are candidates. What is known of a log decides among them: the accepted batches of a section
lie side by side, each producer's sequences go on without a gap, into the batches that are known to follow, and the
flushes of a session are mostly committed in their order (an object that replaces another has a later number). Judged
by the log as it was there, never by a later state; and for all gaps at once: what fills one is missing in another.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lakestream.metadata.commit import Batch, is_next, replayed
from lakestream.metadata.head import ProducerState

_STEPS_MOST: Final = 100_000
"""Few sections lack a receipt: the last flushes of each broker. A search this long will not end."""

States = Mapping[int, ProducerState]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may lie in a gap: the batches of one section that nothing else accounts for."""

    object_key: str
    session: str
    flush: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """These batches of the candidate were in the log; its others were refused."""

    candidate: Candidate
    accepted: tuple[Batch, ...]


def accept(candidate: Candidate, states: States, base_offset: int) -> tuple[Choice, dict[int, ProducerState]]:
    """What a commit would have accepted at this offset, and the producers' states after it."""
    after = dict(states)
    accepted = []
    for batch in candidate.batches:
        if not is_next(after.get(batch.producer_id), batch):
            continue
        accepted.append(batch)
        remember(after, batch, base_offset)
        base_offset += batch.record_count
    return Choice(candidate, tuple(accepted)), after


def remember(states: dict[int, ProducerState], batch: Batch, base_offset: int) -> None:
    if batch.producer_id >= 0:
        known = states.get(batch.producer_id)
        states[batch.producer_id] = replayed(known, batch, base_offset, batch.max_timestamp_ms)


class Known(NamedTuple):
    """Batches that lie side by side in the log and in an object, and their first offset."""

    base_offset: int
    object_key: str
    batches: tuple[Batch, ...]

    @property
    def end_offset(self) -> int:
        return self.base_offset + sum(batch.record_count for batch in self.batches)


def fill(known: Sequence[Known], candidates: Sequence[Candidate], frontier: int) -> dict[int, list[Choice]]:
    """What fills each gap that is not below the frontier, by the offset at which the gap ends. `known`: in order of
    offsets. A gap for which there is nothing is left out, and all behind it."""
    best: _Search | None = None
    for is_ordered, is_continuous in ((True, True), (False, True), (False, False)):
        search = _Search(known, candidates, is_ordered, is_continuous)
        if search.run(0, frontier, {}):
            best = search
            break
        if best is None or search.farthest > best.farthest:
            best = search
    assert best is not None
    filled: dict[int, list[Choice]] = {}
    for end, choice in best.chosen or best.farthest_chosen:
        filled.setdefault(end, []).append(choice)
    return filled


@dataclass(slots=True)
class _Search:
    """Depth first: which section was committed next. `chosen`: with the offset at which the choice's gap ends."""

    known: Sequence[Known]
    candidates: Sequence[Candidate]
    is_ordered: bool
    is_continuous: bool
    chosen: list[tuple[int, Choice]] = field(default_factory=list)
    farthest: int = -1
    farthest_chosen: list[tuple[int, Choice]] = field(default_factory=list)
    steps: int = 0

    def run(self, number: int, offset: int, states: dict[int, ProducerState]) -> bool:
        """The log is whole up to `offset`, which `known` before `number` and the choices reach."""
        while number < len(self.known) and self.known[number].base_offset <= offset:
            each = self.known[number]
            if self.is_continuous and each.end_offset > offset and not _follows(each.batches, states):
                return False
            at = each.base_offset
            for batch in each.batches:
                remember(states, batch, at)
                at += batch.record_count
            offset = max(offset, at)
            number += 1
        if number == len(self.known):
            return True
        if number > self.farthest:
            self.farthest, self.farthest_chosen = number, list(self.chosen)
        end = self.known[number].base_offset
        for candidate in self.candidates:
            self.steps += 1
            if self.steps > _STEPS_MOST:
                return False
            if not self._may_come(candidate):
                continue
            choice, after = accept(candidate, states, offset)
            count = sum(batch.record_count for batch in choice.accepted)
            if count == 0 or offset + count > end:
                continue
            self.chosen.append((end, choice))
            if self.run(number, offset + count, after):
                return True
            self.chosen.pop()
        return False

    def _may_come(self, candidate: Candidate) -> bool:
        for _, choice in self.chosen:
            other = choice.candidate
            if other == candidate:
                return False
            if self.is_ordered and other.session == candidate.session and other.flush > candidate.flush:
                return False
        return True


def _follows(batches: Iterable[Batch], states: States) -> bool:
    """Whether these batches, which were accepted, could have been after these states."""
    first: dict[int, Batch] = {}
    for batch in batches:
        if batch.producer_id >= 0:
            first.setdefault(batch.producer_id, batch)
    return all(is_next(states.get(producer_id), batch) for producer_id, batch in first.items())
