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
from lakestream.bucket.evidence import Evidence, Fate, FoundSection, told_by_mark
from lakestream.bucket.gaps import Candidate, KnownBatches, Placement, Waiting, accept, fill, remember
from lakestream.errors import StorageError
from lakestream.metadata.log.commit import (
    AWAITED,
    UNKNOWN_PRODUCER,
    Batch,
    batch_at,
    closed_epoch,
    end_of,
    refusal_of,
)
from lakestream.metadata.log.head import Extent, Head, ProducerState
from lakestream.model import StreamPartition
from lakestream.objects import Buffer
from lakestream.records import crc32c
from lakestream.records.batches import walk
from lakestream.wal import MAIN_STORE


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
    evidence = Evidence(producers)
    for section in sorted(sections, key=lambda each: each.order):
        span, fate = section.span, fates.get(section.object_key)
        data = bytes(await read(section.object_key, span.position, span.length))
        if crc32c(data) == span.checksum:
            batches = [batch_at(info, span.position, transaction_of(info)) for info in walk(data)]
            evidence.take(section, batches, told_by_mark(saved, section, batches) or fate)
        elif fate is None or not fate.is_below(frontier):
            raise StorageError(
                f"{section.object_key} is damaged, and the log needs its bytes from {span.position} to"
                f" {span.position + span.length - 1}: restore the object from a backup"
            )
    evidence.use_remembered(frontier)
    rebuilt = Rebuilt(producers=dict(producers), next_offset=frontier)
    known = sorted(evidence.known)
    work = _Work(
        partition, rebuilt, read, places, saved, Doubts(frontier), knows_table=_reach(saved, known) >= frontier
    )
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


def _reach(saved: Head, known: Sequence[KnownBatches]) -> int:
    """To which offset it is known who appended what: by saved rows, and from there on by objects."""
    at = saved.next_offset
    for each in known:
        if each.base_offset <= at:
            at = max(at, each.end_offset)
    return at


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
class _Work:
    partition: StreamPartition
    rebuilt: Rebuilt
    read: Read
    places: Callable[[str], tuple[str, ...]]
    saved: Head
    doubts: Doubts
    knows_table: bool
    """Whether the saved states, with what objects tell, know all that the table has."""
    is_known_to_end: bool = True
    """Whether what was placed ends where the log ended when rows were saved, or has not come there yet. If it goes
    beyond, something else was in the log: then nothing is left out because all of it is placed."""
    chosen: int = 0
    """How many records were placed before that end for no other reason than that they fit."""

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
        while await self._append_next(candidates) or self._forget_one(candidates):
            pass

    def _forget_one(self, candidates: Sequence[Candidate]) -> bool:
        """Forgets a producer's state that may end before records of the table, for the sake of a batch that follows
        them. What of the epoch comes before that batch is then neither next nor a duplicate: nobody is told a lie."""
        if self.knows_table:
            return False
        waiting = Waiting(candidates)
        for batch in (batch for candidate in candidates for batch in candidate.unplaced):
            state = self.rebuilt.producers.get(batch.producer_id)
            if state is None or (state.runs and end_of(state.runs[-1]) > self.doubts.frontier):
                continue
            refused = refusal_of(state, batch)
            if refused is not None and refused.refusal == AWAITED and not waiting.has_earlier(batch):
                del self.rebuilt.producers[batch.producer_id]
                return True
        return False

    async def _append_next(self, candidates: list[Candidate]) -> bool:
        if self.rebuilt.next_offset < self.saved.next_offset:
            # What came later was not in the log then: it takes no place of what was acknowledged by that time.
            turns = [[each for each in candidates if self.was_early(each)], candidates]
        elif self.is_known_to_end:
            turns = [[each for each in candidates if not self._was_settled(each) or self._was_passed_over(each)]]
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

    def _was_passed_over(self, candidate: Candidate) -> bool:
        """Whether it, or a batch of it, may have been in the log in place of what was chosen. A record too many is
        better than one that is lost."""
        return min(batch.record_count for batch in candidate.unplaced) <= self.chosen

    def was_early(self, candidate: Candidate) -> bool:
        """Whether the section may have been in the log when rows were saved. That is no proof: what an object replaces
        is committed under its later number, before objects that were written in between."""
        mark = self.saved.sessions.get(candidate.session)
        return self._was_settled(candidate) or (mark is not None and candidate.flush <= mark.flush)

    async def append_choice(self, candidates: list[Candidate], choice: Placement) -> None:
        """What the candidate has beside the choice stays one: a later attempt at the same may have been refused."""
        candidate, accepted = choice.candidate, choice.batches
        begun = self.rebuilt.next_offset
        self.chosen += max(0, min(choice.end_offset, self.saved.next_offset) - begun)
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
