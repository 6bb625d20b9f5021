"""One partition's log, rebuilt from what WAL objects and their receipts say. Pure but for the bytes that it asks for.

What receipts place has its offsets, and so has what saved producers' states remember and the marks of a saved head tell
of each session's last flush. A gap between them, or before the end that the saved head had, is filled by sections of
which no receipt speaks (`gaps`); what is left of those is appended behind the end, except what the producer's sequences
say is there already or never was, and what a saved head says was decided before. (Where its row had expired, a retry
may have landed a second time: behind the end it is left out, and so is there once, where the first attempt is.) The
table's frontier is where the log begins to be needed: a section that is in the table has a receipt
(`frontier.receipts`), so what has none is in no table.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from lakestream.bucket.doubtful import (
    LOST_MARKERS,
    Doubts,
    lost_markers,
    producers_in,
    taken_up,
    transaction_of,
    with_nothing_open,
)
from lakestream.bucket.gaps import Candidate, KnownBatches, Placement, Waiting, accept, fill, remember
from lakestream.errors import StorageError
from lakestream.metadata.log.commit import (
    SEQUENCE_GAP,
    UNKNOWN_PRODUCER,
    Batch,
    batch_at,
    closed_epoch,
    remembered_offset,
)
from lakestream.metadata.log.head import Extent, Head, ProducerState
from lakestream.model import StreamPartition
from lakestream.objects import Buffer
from lakestream.records import crc32c
from lakestream.records.batches import walk
from lakestream.wal import MAIN_STORE, Placed, Span


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


@dataclass(slots=True)
class Rebuilt:
    """`appended`: records of objects without receipt that are in the log now. `left_out`: those that are not, because
    their producer's sequences say that they are there already, or that they never were in the log. `aborted`:
    transactions whose end nobody knows, with so many records. `lost_markers`: offsets of which no object tells."""

    extents: list[Extent] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    next_offset: int = 0
    appended: int = 0
    left_out: int = 0
    aborted: int = 0
    aborted_records: int = 0
    lost_markers: int = 0


Read = Callable[[str, int, int], Awaitable[Buffer]]
"""Bytes of an object: its key, where they begin, how many."""


async def rebuild(
    partition: StreamPartition,
    frontier: int,
    sections: Iterable[FoundSection],
    fates: dict[str, Fate],
    producers: dict[int, ProducerState],
    read: Read,
    places: Callable[[str], tuple[str, ...]] = lambda key: (MAIN_STORE,),
    saved: Head | None = None,
) -> Rebuilt:
    """`fates` by object key. `places`: the stores that have an object. `producers` and `saved`: the rows of the log as
    they were saved. Raises `StorageError` where records that were in the log are in no object any more."""
    saved = saved or Head()
    forgotten = {number: state for number, state in producers.items() if _is_forgotten(state)}
    producers = {number: state for number, state in producers.items() if number not in forgotten}
    evidence = _Evidence(producers)
    for section in sorted(sections, key=lambda each: each.order):
        span, fate = section.span, fates.get(section.object_key)
        data = bytes(await read(section.object_key, span.position, span.length))
        if crc32c(data) == span.checksum:
            batches = [batch_at(info, span.position, transaction_of(info)) for info in walk(data)]
            evidence.take(section, batches, _told_by_mark(saved, section, batches) or fate)
        elif fate is None or not fate.is_below(frontier):
            raise StorageError(
                f"{section.object_key} is damaged, and the log needs its bytes from {span.position} to"
                f" {span.position + span.length - 1}: restore the object from a backup"
            )
    evidence.use_remembered(frontier)
    rebuilt = Rebuilt(producers=dict(producers), next_offset=frontier)
    work = _Work(partition, rebuilt, read, places, saved, Doubts(frontier))
    known = sorted(evidence.known)
    end = saved.next_offset
    transactional = len(producers_in(evidence.batches(), producers))
    while True:
        filled = fill(known, evidence.candidates, evidence.again, frontier, end, work.was_early)
        lost = lost_markers(known, filled, frontier, transactional)
        if lost is None:
            break
        known = sorted([*known, lost])
    for each in known:
        if each.end_offset <= frontier:
            work.replay(each)
            continue
        for choice in filled.pop(each.base_offset, ()):
            await work.append_choice(evidence.candidates, choice)
        await work.place(each)
    for choice in filled.get(end, ()):
        await work.append_choice(evidence.candidates, choice)
    await work.append(evidence.candidates)
    work.end_transactions(transactional)
    left = sum(batch.record_count for each in evidence.candidates for batch in each.unplaced)
    work.rebuilt.left_out = evidence.repeated + left
    for number, state in forgotten.items():
        _close_again(work.rebuilt.producers, number, state)
    return work.rebuilt


def _told_by_mark(saved: Head, section: FoundSection, batches: Sequence[Batch]) -> Fate | None:
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


def _is_forgotten(state: ProducerState) -> bool:
    """Closed when its row had expired: it tells nothing of what the epoch had appended before."""
    return not state.runs and state.closed == UNKNOWN_PRODUCER


def _close_again(producers: dict[int, ProducerState], number: int, saved: ProducerState) -> None:
    known = producers.get(number)
    if known is None or known.epoch < saved.epoch:
        producers[number] = saved
    elif known.epoch == saved.epoch:
        producers[number] = msgspec.structs.replace(known, closed=saved.closed)


@dataclass(slots=True)
class _Evidence:
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


@dataclass(slots=True)
class _Work:
    partition: StreamPartition
    rebuilt: Rebuilt
    read: Read
    places: Callable[[str], tuple[str, ...]]
    saved: Head
    doubts: Doubts
    is_known_to_end: bool = True
    """Whether what was placed ends where the log ended when rows were saved, or has not come there yet. If it goes
    beyond, something else was in the log: then nothing is left out because all of it is placed."""

    def replay(self, known: KnownBatches) -> None:
        """In the table: only its producers matter."""
        self._remember(known.batches, known.base_offset)

    async def place(self, known: KnownBatches) -> None:
        if known.end_offset <= self.rebuilt.next_offset:
            raise StorageError(
                f"partition {self.partition.index} of topic {self.partition.topic_id}: two receipts give the offsets"
                f" from {known.base_offset} on away, one of them for {known.object_key}"
            )
        if known.base_offset > self.rebuilt.next_offset:
            raise StorageError(
                f"partition {self.partition.index} of topic {self.partition.topic_id}: the records from offset"
                f" {self.rebuilt.next_offset} to {known.base_offset - 1} were in the log, and no WAL object has them:"
                " restore the bucket from a backup"
            )
        if known.object_key == LOST_MARKERS:
            self.rebuilt.lost_markers += known.end_offset - known.base_offset
            self._add_markers(taken_up(known.base_offset, known.end_offset))
            return
        self._remember(known.batches, known.base_offset)
        await self._add(known.object_key, known.base_offset, known.batches)

    def end_transactions(self, transactional: int) -> None:
        """What is in doubt is aborted. The log is then as long as it was when rows were saved."""
        rebuilt = self.rebuilt
        rebuilt.aborted, rebuilt.aborted_records = len(self.doubts.of), self.doubts.records
        self._add_markers(self.doubts.ends(rebuilt.next_offset))
        missing = self.saved.next_offset - rebuilt.next_offset
        if 0 < missing <= transactional:
            rebuilt.lost_markers += missing
            self._add_markers(taken_up(rebuilt.next_offset, self.saved.next_offset))
        for number, state in rebuilt.producers.items():
            rebuilt.producers[number] = with_nothing_open(state)

    def _add_markers(self, markers: Sequence[Extent]) -> None:
        self.rebuilt.extents += markers
        self.rebuilt.next_offset += len(markers)

    async def append(self, candidates: list[Candidate]) -> None:
        """Behind the end, by the newest states. Objects may come in another order than they were committed in: what
        has others before it waits for them, unless nothing else is left."""
        while await self._append_next(candidates):
            pass

    async def _append_next(self, candidates: list[Candidate]) -> bool:
        if self.rebuilt.next_offset < self.saved.next_offset:
            # What came later was not in the log then: it takes no place of what was acknowledged by that time.
            turns = [[each for each in candidates if self.was_early(each)], candidates]
        elif self.is_known_to_end:
            turns = [[each for each in candidates if not self._was_settled(each)]]
        else:
            turns = [candidates]
        for chosen in turns:
            for waiting in (Waiting(chosen), None):
                if await self._append_first(candidates, chosen, waiting):
                    return True
        return False

    async def _append_first(
        self, candidates: list[Candidate], chosen: Sequence[Candidate], waiting: Waiting | None
    ) -> bool:
        for candidate in chosen:
            choice, _ = accept(candidate, self.rebuilt.producers, self.rebuilt.next_offset, waiting)
            if choice.accepted:
                await self.append_choice(candidates, choice)
                return True
        return False

    def _was_settled(self, candidate: Candidate) -> bool:
        """Whether nothing of the section could enter the log after rows were saved. Once the log is as long as it was
        then, whatever was in it is placed: an upload may arrive when all that told of it has been collected."""
        mark = self.saved.sessions.get(candidate.session)
        return candidate.generation < self.saved.fence or (mark is not None and candidate.flush == mark.flush)

    def was_early(self, candidate: Candidate) -> bool:
        """Whether the section may have been in the log when rows were saved. That is no proof: what an object replaces
        is committed under its later number, before objects that were written in between."""
        mark = self.saved.sessions.get(candidate.session)
        return self._was_settled(candidate) or (mark is not None and candidate.flush <= mark.flush)

    async def append_choice(self, candidates: list[Candidate], choice: Placement) -> None:
        """What the candidate has beside the choice stays one: a later attempt at the same may have been refused."""
        candidate, accepted = choice.candidate, choice.batches
        begun = self.rebuilt.next_offset
        for run in _runs(accepted):
            base_offset = self.rebuilt.next_offset
            self._remember(run, base_offset)
            await self._add(candidate.object_key, base_offset, run)
            self.rebuilt.appended += self.rebuilt.next_offset - base_offset
        for batch in choice.closed:
            state = self.rebuilt.producers.get(batch.producer_id)
            self.rebuilt.producers[batch.producer_id] = closed_epoch(state, batch, batch.max_timestamp_ms)
        self.is_known_to_end &= not begun < self.saved.next_offset < self.rebuilt.next_offset
        for index, each in enumerate(candidates):
            if each.object_key == candidate.object_key:
                rest = replace(each, elsewhere=each.elsewhere | {batch.position for batch in accepted})
                candidates[index : index + 1] = [rest] if rest.unplaced else []
                break

    def _remember(self, batches: Iterable[Batch], base_offset: int) -> None:
        for batch in batches:
            self.doubts.note(batch, base_offset)
            remember(self.rebuilt.producers, batch, base_offset)
            base_offset += batch.record_count

    async def _add(self, object_key: str, base_offset: int, batches: Sequence[Batch]) -> None:
        position = batches[0].position
        length = batches[-1].position + batches[-1].length - position
        data = bytes(await self.read(object_key, position, length))
        end_offset = base_offset + sum(batch.record_count for batch in batches)
        self.rebuilt.extents.append(
            Extent(
                base_offset=base_offset,
                end_offset=end_offset,
                stores=self.places(object_key),
                object_key=object_key,
                position=position,
                length=length,
                max_timestamp_ms=max(batch.max_timestamp_ms for batch in batches),
                checksum=crc32c(data),
            )
        )
        self.rebuilt.next_offset = end_offset


def _runs(batches: Iterable[Batch]) -> list[list[Batch]]:
    """Those that lie side by side in their object are one extent."""
    runs: list[list[Batch]] = []
    for batch in batches:
        if runs and runs[-1][-1].position + runs[-1][-1].length == batch.position:
            runs[-1].append(batch)
        else:
            runs.append([batch])
    return runs
