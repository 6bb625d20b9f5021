"""Filling the gaps of a rebuilt log: offsets that were given away, and no receipt tells to what.

Sections without receipt are candidates. What is known of a log decides among them: the accepted batches of a section
lie side by side, each producer's sequences go on without a gap, into the batches that are known to follow, and the
flushes of a session are mostly committed in their order (an object that replaces another has a later number). Judged
by the log as it was there, never by a later state; and for all gaps at once: what fills one is missing in another.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lakestream.metadata.log.commit import SEQUENCE_SPAN, Batch, is_next, replayed
from lakestream.metadata.log.head import ProducerState

_STEPS_MOST: Final = 100_000
"""Few sections lack a receipt: the last flushes of each broker. A search this long will not end."""

States = Mapping[int, ProducerState]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may lie in a gap: the batches of one section that receipts do not speak of. `elsewhere`: positions of those
    that are known to lie elsewhere, so that this attempt at them was refused."""

    object_key: str
    session: str
    flush: int
    batches: tuple[Batch, ...]
    elsewhere: frozenset[int] = frozenset()

    @property
    def unplaced(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.position not in self.elsewhere]


@dataclass(frozen=True, slots=True)
class Placement:
    """These batches of the candidate were in the log; its others were refused. `is_early`: some of those would not have
    been, at that point of the log."""

    candidate: Candidate
    accepted: tuple[Batch, ...]
    is_early: bool = False


class Waiting:
    """Which batches have others before them among those that are still to be placed: the first of an epoch that is
    known follows no state, and one that lands too early shuts out those before it."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._lowest_epochs: dict[int, int] = {}
        self._lowest_sequences: dict[tuple[int, int], int] = {}
        for batch in (batch for candidate in candidates for batch in candidate.unplaced):
            producer_id, epoch = batch.producer_id, batch.producer_epoch
            self._lowest_epochs[producer_id] = min(epoch, self._lowest_epochs.get(producer_id, epoch))
            lowest = self._lowest_sequences.get((producer_id, epoch))
            if lowest is None or _is_before(batch.base_sequence, lowest):
                self._lowest_sequences[producer_id, epoch] = batch.base_sequence

    def holds_back(self, batch: Batch, state: ProducerState | None) -> bool:
        if batch.producer_id < 0 or (state is not None and state.epoch == batch.producer_epoch):
            return False
        lowest_epoch = self._lowest_epochs.get(batch.producer_id, batch.producer_epoch)
        return lowest_epoch < batch.producer_epoch or self.has_earlier(batch)

    def has_earlier(self, batch: Batch) -> bool:
        """Whether earlier ones of the same epoch are still to be placed."""
        lowest = self._lowest_sequences.get((batch.producer_id, batch.producer_epoch))
        return lowest is not None and _is_before(lowest, batch.base_sequence)


def _is_before(sequence: int, other: int) -> bool:
    """Sequences wrap around."""
    return 0 < (other - sequence) % SEQUENCE_SPAN < SEQUENCE_SPAN // 2


def accept(
    candidate: Candidate, states: States, base_offset: int, waiting: Waiting | None
) -> tuple[Placement, dict[int, ProducerState]]:
    """What a commit would have accepted at this offset, and the producers' states after it."""
    after = dict(states)
    accepted = []
    is_early = False
    for batch in candidate.batches:
        state = after.get(batch.producer_id)
        if not is_next(state, batch):
            continue
        if batch.position in candidate.elsewhere:
            is_early |= state is not None
        elif waiting is not None and waiting.holds_back(batch, state):
            is_early = True
        else:
            accepted.append(batch)
            remember(after, batch, base_offset)
            base_offset += batch.record_count
    return Placement(candidate, tuple(accepted), is_early), after


def remember(states: dict[int, ProducerState], batch: Batch, base_offset: int) -> None:
    if batch.producer_id >= 0:
        known = states.get(batch.producer_id)
        states[batch.producer_id] = replayed(known, batch, base_offset, batch.max_timestamp_ms)


class KnownBatches(NamedTuple):
    """Batches that lie side by side in the log and in an object, and their first offset."""

    base_offset: int
    object_key: str
    batches: tuple[Batch, ...]

    @property
    def end_offset(self) -> int:
        return self.base_offset + sum(batch.record_count for batch in self.batches)


def fill(known: Sequence[KnownBatches], candidates: Sequence[Candidate], frontier: int) -> dict[int, list[Placement]]:
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
    filled: dict[int, list[Placement]] = {}
    for end, choice in best.chosen or best.farthest_chosen:
        filled.setdefault(end, []).append(choice)
    return filled


@dataclass(slots=True)
class _Search:
    """Depth first: which section was committed next. `chosen`: with the offset at which the choice's gap ends."""

    known: Sequence[KnownBatches]
    candidates: Sequence[Candidate]
    is_ordered: bool
    is_continuous: bool
    chosen: list[tuple[int, Placement]] = field(default_factory=list)
    farthest: int = -1
    farthest_chosen: list[tuple[int, Placement]] = field(default_factory=list)
    steps: int = 0

    def run(self, number: int, offset: int, states: dict[int, ProducerState]) -> bool:
        """The log is whole up to `offset`, which `known` before `number` and the choices reach."""
        while number < len(self.known) and self.known[number].base_offset <= offset:
            each = self.known[number]
            if self.is_continuous and each.end_offset > offset and not self._follows(each.batches, states):
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
        waiting = Waiting(self._left()) if self.is_continuous else None
        for candidate in self.candidates:
            self.steps += 1
            if self.steps > _STEPS_MOST:
                return False
            if not self._may_come(candidate):
                continue
            choice, after = accept(candidate, states, offset, waiting)
            count = sum(batch.record_count for batch in choice.accepted)
            if count == 0 or offset + count > end or (self.is_continuous and choice.is_early):
                continue
            self.chosen.append((end, choice))
            if self.run(number, offset + count, after):
                return True
            self.chosen.pop()
        return False

    def _left(self) -> list[Candidate]:
        chosen = {choice.candidate.object_key for _, choice in self.chosen}
        return [candidate for candidate in self.candidates if candidate.object_key not in chosen]

    def _may_come(self, candidate: Candidate) -> bool:
        for _, choice in self.chosen:
            other = choice.candidate
            if other == candidate:
                return False
            if self.is_ordered and other.session == candidate.session and other.flush > candidate.flush:
                return False
        return True

    def _follows(self, batches: Iterable[Batch], states: States) -> bool:
        """Whether these batches, which were accepted, could have been after these states."""
        first: dict[int, Batch] = {}
        for batch in batches:
            if batch.producer_id >= 0:
                first.setdefault(batch.producer_id, batch)
        unseen = [batch for producer_id, batch in first.items() if producer_id not in states]
        if unseen:
            waiting = Waiting(self._left())
            if any(waiting.has_earlier(batch) for batch in unseen):
                return False
        return all(is_next(states.get(producer_id), batch) for producer_id, batch in first.items())
