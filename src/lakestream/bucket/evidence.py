"""What WAL objects, receipts, saved states and saved heads tell of single batches of one partition's log."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from lakestream.bucket.gaps import Candidate, KnownBatches
from lakestream.metadata.log.commit import SEQUENCE_GAP, Batch, remembered_offset
from lakestream.metadata.log.head import Head, ProducerState
from lakestream.wal import Placed, Span


@dataclass(frozen=True, slots=True)
class FoundSection:
    """One partition's part of a WAL object. `order`: what is known of its time, then its session and flush."""

    object_key: str
    span: Span
    order: tuple[int, str, int]
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Fate:
    """What receipts say of a section. `whole`: they speak of every byte of it."""

    placed: tuple[Placed, ...]
    whole: bool

    def is_below(self, frontier: int) -> bool:
        """Whether all of the section that was in the log is in the table."""
        return self.whole and all(each.base_offset + each.record_count <= frontier for each in self.placed)


def told_by_mark(saved: Head, section: FoundSection, batches: Sequence[Batch]) -> Fate | None:
    """What a saved head says of the last flush of a session, batch by batch: as good as a receipt."""
    _, session, flush = section.order
    mark = saved.sessions.get(session)
    if mark is None or (mark.flush, mark.generation, len(mark.batches)) != (flush, section.generation, len(batches)):
        return None
    placed: list[Placed] = []
    for batch, told in zip(batches, mark.batches, strict=True):
        if told.refusal:
            continue
        last = placed[-1] if placed else None
        if last is not None and last.position + last.length == batch.position:
            count, length = last.record_count + batch.record_count, last.length + batch.length
            placed[-1] = Placed(last.base_offset, count, last.position, length)
        else:
            placed.append(Placed(told.base_offset, batch.record_count, batch.position, batch.length))
    return Fate(tuple(placed), whole=True)


@dataclass(slots=True)
class Evidence:
    """What is known of single batches. `repeated`: records of sections without receipt that are known elsewhere, or
    known to be nowhere.
    `again`: the candidates and those repeats, which are in the log a second time if their producer's row had expired
    between the attempts."""

    producers: dict[int, ProducerState]
    known: list[KnownBatches] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    again: list[Candidate] = field(default_factory=list)
    repeated: int = 0

    def batches(self) -> Iterable[Batch]:
        yield from (batch for each in self.known for batch in each.batches)
        yield from (batch for each in self.candidates for batch in each.batches)

    def take(self, section: FoundSection, batches: Sequence[Batch], fate: Fate | None) -> None:
        rest = list(batches)
        for place in () if fate is None else fate.placed:
            # Receipts of WAL format 2 tell only where a section begins: it is taken for whole.
            start, end = place.position, place.position + place.length
            is_whole = place.length < 0
            inside = tuple(each for each in rest if is_whole or start <= each.position < end)
            rest = [each for each in rest if not is_whole and not start <= each.position < end]
            if inside:
                self.known.append(KnownBatches(place.base_offset, section.object_key, inside))
        if rest and (fate is None or not fate.whole):
            _, session, flush = section.order
            found = Candidate(section.object_key, session, flush, tuple(rest), generation=section.generation)
            self.candidates.append(found)

    def use_remembered(self, frontier: int) -> None:
        """Saved states tell the offsets of each producer's last batches, as good as a receipt, and which epochs never
        had one. And a batch that is known to lie somewhere lies nowhere else: other attempts at it were refused."""
        receipted = {_identity(batch) for each in self.known for batch in each.batches if batch.producer_id >= 0}
        placed = set(receipted)
        candidates, self.candidates = self.candidates, []
        for candidate in candidates:
            elsewhere, used, remembered = set(), set(), []
            for batch in candidate.batches:
                state = self.producers.get(batch.producer_id)
                if _never_landed(state, batch):
                    elsewhere.add(batch.position)
                    self.repeated += batch.record_count
                    continue
                offset = remembered_offset(state, batch)
                is_known = batch.producer_id >= 0 and _identity(batch) in placed
                if not is_known and offset is None:
                    continue
                elsewhere.add(batch.position)
                if offset is not None and _identity(batch) not in receipted:
                    remembered.append((batch.position, offset))
                # What is remembered below the frontier is in the table, which has a receipt of another attempt.
                if is_known or offset is None or offset < frontier:
                    self.repeated += batch.record_count
                else:
                    placed.add(_identity(batch))
                    used.add(batch.position)
                    self.known.append(KnownBatches(offset, candidate.object_key, (batch,)))
            self.again.append(replace(candidate, elsewhere=frozenset(used)))
            candidate = replace(candidate, elsewhere=frozenset(elsewhere), remembered=tuple(remembered))
            if candidate.unplaced:
                self.candidates.append(candidate)


def _never_landed(state: ProducerState | None, batch: Batch) -> bool:
    """Its epoch was closed before anything of it was in the log, while the producer's row had not expired."""
    return state is not None and state.epoch == batch.producer_epoch and not state.runs and state.closed == SEQUENCE_GAP


def _identity(batch: Batch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence
