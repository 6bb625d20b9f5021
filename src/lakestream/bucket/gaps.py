"""Filling the gaps of a rebuilt log: offsets that were given away, and no receipt tells to what.

Sections without receipt are candidates. What is known of a log decides among them: the accepted batches of a section
lie side by side, each producer's sequences go on without a gap, into the batches that are known to follow, and the
flushes of a session are mostly committed in their order (an object that replaces another has a later number). Judged
by the log as it was there, never by a later state; and for all gaps at once: what fills one is missing in another.
Only where all of that leaves a gap had a producer's row expired, so that a batch which is known elsewhere landed again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, product
from typing import Final, NamedTuple

from lakestream.metadata.log.commit import (
    AWAITED,
    FIRST_SEQUENCE,
    SEQUENCE_SPAN,
    Batch,
    closed_epoch,
    is_next,
    refusal_of,
    replayed,
)
from lakestream.metadata.log.head import ProducerState

_STEPS_MOST: Final = 20_000
"""Few sections lack a receipt: the last flushes of each broker. A search this long will not end."""

States = Mapping[int, ProducerState]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may lie in a gap: the batches of one section that receipts do not speak of. `elsewhere`: positions of those
    that are known to lie elsewhere or nowhere, so that this attempt at them was refused. `remembered`: positions of
    those whose offset is known, but not from which of several attempts: this one was refused, or lies there."""

    object_key: str
    session: str
    flush: int
    batches: tuple[Batch, ...]
    elsewhere: frozenset[int] = frozenset()
    remembered: tuple[tuple[int, int], ...] = ()
    generation: int = 0

    @property
    def unplaced(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.position not in self.elsewhere]


@dataclass(frozen=True, slots=True)
class Placement:
    """These batches of the candidate were in the log, at these offsets; its others were refused. `is_early`: some of
    those would not have been, at that point of the log. `closed`: whose epochs were closed, so that they were."""

    candidate: Candidate
    accepted: tuple[tuple[int, Batch], ...]
    is_early: bool = False
    closed: tuple[Batch, ...] = ()

    @property
    def batches(self) -> list[Batch]:
        return [batch for _, batch in self.accepted]

    @property
    def end_offset(self) -> int:
        offset, last = self.accepted[-1]
        return offset + last.record_count

    def bring_on(self, states: dict[int, ProducerState]) -> None:
        """What producers' states are after it."""
        for offset, batch in self.accepted:
            remember(states, batch, offset)
        for batch in self.closed:
            states[batch.producer_id] = closed_epoch(states.get(batch.producer_id), batch, batch.max_timestamp_ms)

    def fits(self, start: int, end: int) -> bool:
        """Whether it lies side by side from `start` on, and not beyond `end`."""
        at = start
        for offset, batch in self.accepted:
            if offset != at:
                return False
            at += batch.record_count
        return start < at <= end


class Waiting:
    """Which batches have others before them among those that are still to be placed: the first of an epoch that is
    known follows no state, and one that lands too early shuts out those before it."""

    def __init__(self, candidates: Iterable[Candidate], later: Iterable[Batch] = ()) -> None:
        """`later`: known to be in the log farther on."""
        self._lowest_epochs: dict[int, int] = {}
        self._lowest_sequences: dict[tuple[int, int], int] = {}
        for batch in chain((batch for candidate in candidates for batch in candidate.unplaced), later):
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


class Closing(Enum):
    """Where epochs were closed, of which nothing tells but what is missing of them."""

    NOWHERE = "nowhere"
    BY_GAP = "by a batch whose predecessor is not there"
    BEFORE = "before anything of theirs came"


def accept(
    candidate: Candidate,
    states: States,
    base_offset: int,
    waiting: Waiting | None,
    *,
    is_new: bool = False,
    closing: Closing = Closing.NOWHERE,
) -> tuple[Placement, dict[int, ProducerState]]:
    """What a commit would have accepted at this offset, and the producers' states after it. `is_new`: producers without
    a state had none."""
    after, offset = dict(states), base_offset
    remembered = dict(candidate.remembered)
    accepted, closed = [], []
    is_early = False
    for batch in candidate.batches:
        state = after.get(batch.producer_id)
        if batch.position not in candidate.elsewhere and _closes(closing, state, batch):
            after[batch.producer_id] = closed_epoch(state, batch, batch.max_timestamp_ms)
            closed.append(batch)
            continue
        if not is_next(state, batch) or (is_new and _cannot_begin(state, batch)):
            continue
        if remembered.get(batch.position) == offset:
            remember(after, batch, offset)
            offset += batch.record_count
        elif batch.position in candidate.elsewhere:
            is_early |= state is not None
        elif waiting is not None and waiting.holds_back(batch, state):
            # A later one was refused there: what comes before it had not landed.
            is_early |= batch.base_sequence == FIRST_SEQUENCE
        else:
            accepted.append((offset, batch))
            remember(after, batch, offset)
            offset += batch.record_count
    return Placement(candidate, tuple(accepted), is_early, tuple(closed)), after


def _closes(closing: Closing, state: ProducerState | None, batch: Batch) -> bool:
    if closing is Closing.NOWHERE or batch.producer_id < 0:
        return False
    if state is None or state.epoch < batch.producer_epoch:
        return closing is Closing.BEFORE or batch.base_sequence != FIRST_SEQUENCE
    refused = refusal_of(state, batch)
    return closing is Closing.BY_GAP and refused is not None and refused.refusal == AWAITED


def _cannot_begin(state: ProducerState | None, batch: Batch) -> bool:
    return batch.producer_id >= 0 and state is None and batch.base_sequence != FIRST_SEQUENCE


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


def fill(
    known: Sequence[KnownBatches],
    candidates: Sequence[Candidate],
    again: Sequence[Candidate],
    frontier: int,
    end: int = 0,
    was_early: Callable[[Candidate], bool] = lambda _: False,
) -> dict[int, list[Placement]]:
    """What fills each gap that is not below the frontier, by the offset at which the gap ends. `known`: in order of
    offsets. `again`: the candidates, and what else may have landed a second time. `end`: where the log once ended. From
    the last of `known` to there is a gap, too, if something fits exactly, first of all what `was_early`: may have been
    in the log by then. A gap for which there is nothing is left out, and all behind it."""
    searches: list[_Search] = []
    if end > max((each.end_offset for each in known), default=frontier):
        whole = [*known, KnownBatches(end, "", ())]
        early = sorted(candidates, key=lambda each: not was_early(each))
        searches = [_Search(whole, early, is_ordered=True), _Search(whole, early)]
    best: _Search | None = None
    for search in (
        *searches,
        _Search(known, candidates, is_ordered=True),
        _Search(known, candidates),
        _Search(known, candidates, is_new=True),
        _Search(known, candidates, is_new=True, closings=tuple(Closing)),
        _Search(known, candidates, is_continuous=False),
        _Search(known, again, is_continuous=False, is_forgetful=True),
    ):
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
    """Depth first: which section was committed next. `chosen`: with the offset at which the choice's gap ends.
    `is_ordered`: a session's flushes are. `is_continuous`: a producer's sequences are. `is_new`: producers have nothing
    below the frontier. `closings`: what is tried for each choice. `is_forgetful`: any producer's row may have expired
    at any time."""

    known: Sequence[KnownBatches]
    candidates: Sequence[Candidate]
    is_ordered: bool = False
    is_continuous: bool = True
    is_new: bool = False
    closings: Sequence[Closing] = (Closing.NOWHERE,)
    is_forgetful: bool = False
    chosen: list[tuple[int, Placement]] = field(default_factory=list)
    farthest: int = -1
    farthest_chosen: list[tuple[int, Placement]] = field(default_factory=list)
    steps: int = 0
    later: list[tuple[int, Batch]] = field(default_factory=list)
    """Known batches of the candidates' producers, with their offsets."""
    remembered: set[int] = field(default_factory=set)
    states_at: dict[int, States] = field(default_factory=dict)
    """Before batches that are remembered, by their offsets."""

    def __post_init__(self) -> None:
        producers = {batch.producer_id for candidate in self.candidates for batch in candidate.batches} - {-1}
        self.remembered = {at for candidate in self.candidates for _, at in candidate.remembered}
        for each in self.known:
            self.later += [(each.base_offset, batch) for batch in each.batches if batch.producer_id in producers]

    def run(self, number: int, offset: int, states: dict[int, ProducerState]) -> bool:
        """The log is whole up to `offset`, which `known` before `number` and the choices reach."""
        while number < len(self.known) and self.known[number].base_offset <= offset:
            each = self.known[number]
            if self.is_continuous and each.end_offset > offset and not self._follows(each.batches, states):
                return False
            at = each.base_offset
            if at in self.remembered:
                self.states_at[at] = dict(states)
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
            if not self._may_come(candidate):
                continue
            for start, closing in product(self._starts(candidate, offset), self.closings):
                self.steps += 1
                if self.steps > _STEPS_MOST:
                    return False
                before = states if start == offset else self.states_at[start]
                choice = self._accept(candidate, start, before, closing)
                if not choice.fits(offset, end) or (self.is_continuous and choice.is_early):
                    continue
                after = dict(states)
                choice.bring_on(after)
                self.chosen.append((end, choice))
                if self.run(number, choice.end_offset, after):
                    return True
                self.chosen.pop()
        return False

    def _starts(self, candidate: Candidate, offset: int) -> list[int]:
        """Where the candidate may begin that is to go on at `offset`: there, or with a batch that is remembered."""
        return [offset, *(at for _, at in candidate.remembered if at < offset and at in self.states_at)]

    def _accept(self, candidate: Candidate, start: int, states: States, closing: Closing) -> Placement:
        waiting = None
        if self.is_continuous:
            waiting = Waiting(self._left(), (batch for at, batch in self.later if at >= start))
        known = {} if self.is_forgetful else states
        return accept(candidate, known, start, waiting, is_new=self.is_new, closing=closing)[0]

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
