"""Folding the records of a compacted topic to the newest of each key, below the frontier.

A file whose keys were folded says so in its name (`rewritten`), so what is left to do is read from the table: files
without the mark are dirty. One fold takes some dirty files, learns the newest offset of each of their keys, and then
rewrites, run by run, first the files folded before without what is superseded, then the dirty ones, which get the mark.
Each run is a commit of its own, and safe alone: a record goes only if the table holds a newer one of its key. Among
files with the mark every key stands once, if no dirty file lies below.

A tombstone goes when its file has had the mark for `delete.retention.ms` and no dirty file lies below it: nothing
older of its key is left for it to hide. Offsets stay, gaps are legal, the tail is not touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakestream.frontier.lake import Lake
from lakestream.frontier.upkeep.merging import is_ours, pack
from lakestream.frontier.upkeep.rewrite import Swapped, put_in_place
from lakestream.frontier.upkeep.rewritten import parse_rewritten
from lakestream.metadata.topics.options import TopicOptions
from lakestream.model import DataFile
from lakestream.table.reading.shares import Share
from lakestream.table.rewriting.folding import KEY_COLUMNS, Newest, keeper
from lakestream.table.rewriting.rewriter import Rewriter, Unmergeable
from lakestream.table.view import View

MAX_FOLD_ROWS: Final = 1_000_000
"""Dirty rows of one fold, unless one file has more: their keys are held in memory."""
MAX_KEY_ROWS: Final = 4_000_000
"""Rows whose keys one fold learns in all. Beyond them, of what is newer only keys of dirty rows are learned."""

ByFile = Mapping[str, Mapping[int, Share]]


@dataclass(frozen=True, slots=True)
class Fold:
    """`dirty` files get the mark; the keys of `newer` files, which have it or never will, count too; `folded` files may
    lose rows. `clean_below`: the offsets, by partition, below which no file is dirty. `learns_all`: whether all keys of
    `newer` are held in memory, or only those that `dirty` has, too: no folded row goes because of the others then."""

    dirty: tuple[DataFile, ...]
    newer: tuple[DataFile, ...]
    folded: tuple[DataFile, ...]
    clean_below: Mapping[int, int]
    learns_all: bool

    @property
    def dirty_rows(self) -> int:
        return sum(file.record_count for file in self.dirty)


@dataclass(frozen=True, slots=True)
class Folded:
    """What was done. `stuck`: a file that cannot be rewritten here is in the way, and will be again."""

    swaps: tuple[Swapped, ...]
    stuck: bool = False


def folded_ms(file: DataFile) -> int | None:
    """When the file's keys were folded; None: it is dirty."""
    bound = parse_rewritten(file.path.rsplit("/", 1)[-1])
    return None if bound is None else bound.folded_ms


def plan_fold(view: View, by_file: ByFile, options: TopicOptions, seen: Sequence[int] | None = None) -> Fold | None:
    """What one fold takes on; None: not enough is dirty yet. Pure. `seen`: how far the tables that are derived from
    this one have come; what is beyond stays as it is. None: there are none."""
    folded = tuple(file for file in view.files if folded_ms(file) is not None)
    dirty = sorted((file for file in view.files if folded_ms(file) is None), key=lambda file: _low(by_file[file.path]))
    mine = [
        file for file in dirty if is_ours(file, view.layout) and (seen is None or _is_below(by_file[file.path], seen))
    ]
    own = {file.path for file in mine}
    dirty_rows = sum(file.record_count for file in mine)
    if not dirty_rows or dirty_rows < options.dirty_ratio * (dirty_rows + sum(file.record_count for file in folded)):
        return None
    clean_below = dict(enumerate(view.frontier))
    for file in dirty:
        _lower(clean_below, by_file[file.path])
    taken: list[DataFile] = []
    rows = 0
    starts: dict[int, int] = {}
    for file in mine:
        if taken and rows + file.record_count > MAX_FOLD_ROWS:
            break
        taken.append(file)
        rows += file.record_count
        _lower(starts, by_file[file.path])
    newer = tuple(
        file
        for file in (*folded, *(other for other in dirty if other.path not in own))
        if any(index in starts and share.offset_max >= starts[index] for index, share in by_file[file.path].items())
    )
    learns_all = rows + sum(file.record_count for file in newer) <= MAX_KEY_ROWS
    return Fold(tuple(taken), newer, folded, clean_below, learns_all)


async def fold(lake: Lake, rewriter: Rewriter, view: View, planned: Fold, options: TopicOptions) -> Folded:
    """Does it, and stops where the table has changed under it: what is left is found again.

    A dirty file gets the mark only in a view whose other marks are known here: had somebody else marked files since,
    their keys and these might not have been folded with each other."""
    now_ms = lake.runtime.clock.now_ms()
    newest = Newest()
    deleted = await rewriter.deleted(view.deletes)
    for file in planned.dirty:
        await rewriter.read(file, deleted, KEY_COLUMNS, newest.add)
    for file in planned.newer:
        await rewriter.read(file, deleted, KEY_COLUMNS, newest.add if planned.learns_all else newest.add_known)
    done: list[Swapped] = []
    marked = _marked(view)
    ages = _ages(planned.folded, options.tombstone_ms, now_ms)
    groups = (*(ages[age] for age in sorted(ages)), planned.dirty)
    waiting = [run for files in groups for run in pack(files, lake.settings)][::-1]
    while waiting:
        run = waiting.pop()
        times = [ms for file in run if (ms := folded_ms(file)) is not None]
        expired = bool(times) and max(times) < now_ms - options.tombstone_ms
        keep = keeper(newest, planned.clean_below if expired else {})
        try:
            rewritten = await rewriter.rewrite(
                run,
                view.deletes,
                shape=view.shape,
                own_file_bytes=lake.settings.own_file_bytes,
                compression=view.compression,
                keep=keep,
                layout=view.layout,
                order=view.order,
            )
        except Unmergeable:
            if len(run) == 1:
                return Folded(tuple(done), stuck=True)
            waiting += [run[len(run) // 2 :], run[: len(run) // 2]]
            continue
        rows = sum(file.stats.record_count for file in rewritten)
        if times and rows == sum(file.record_count for file in run) and len(rewritten) >= len(run):
            continue
        swapped = await put_in_place(
            lake,
            view,
            run,
            rewritten,
            folded_ms=max(times, default=now_ms),
            holds=lambda latest, known=marked: _marked(latest) <= known,  # type: ignore[misc]
        )
        if swapped is None:
            break
        done.append(swapped)
        view, marked = swapped.view, _marked(swapped.view)
    return Folded(tuple(done))


def _is_below(shares: Mapping[int, Share], seen: Sequence[int]) -> bool:
    return all(index < len(seen) and share.offset_max < seen[index] for index, share in shares.items())


def _ages(files: Sequence[DataFile], tombstone_ms: int, now_ms: int) -> dict[int, list[DataFile]]:
    """Files to be merged with each other only. A merged file counts as old as the youngest in it, and must not stay
    young for ever because younger ones join it: -1 are those whose tombstones may go, the others are by quarters of
    the time until then."""
    ages: dict[int, list[DataFile]] = {}
    for file in files:
        mark_ms = folded_ms(file) or 0
        age = -1 if mark_ms < now_ms - tombstone_ms else mark_ms // max(1, tombstone_ms // 4)
        ages.setdefault(age, []).append(file)
    return ages


def _marked(view: View) -> frozenset[str]:
    return frozenset(file.path for file in view.files if folded_ms(file) is not None)


def _low(shares: Mapping[int, Share]) -> int:
    return min((share.offset_min for share in shares.values()), default=0)


def _lower(starts: dict[int, int], shares: Mapping[int, Share]) -> None:
    for index, share in shares.items():
        starts[index] = min(share.offset_min, starts.get(index, share.offset_min))
