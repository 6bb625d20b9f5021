"""Distinct keys of a table, counted for the optimizers of engines: a sketch of `_key` in a statistics file.

A sketch says of itself up to which frontier keys are in it, so the next count reads only what came since. It is the
table that says so, through its commits: whoever comes next goes on from there, and a count that was lost is done again.
Keys never leave a sketch. So it is begun anew when the table has lost half of the rows that were counted, and the
number never exceeds the table's rows. A statistics file that is not ours, or damaged, counts as none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakestream.catalog.rules.streams import falls
from lakestream.errors import Conflict, CorruptObject, ObjectMissing
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.schedule import still_waits
from lakestream.metadata.topics.options import UNLIMITED
from lakestream.model import Blob, DataFile, StatisticsFile
from lakestream.records import crc32c
from lakestream.table.parquet.puffin import StoredBlob, read_puffin, write_puffin
from lakestream.table.reading.files import key_in
from lakestream.table.reading.shares import Shares
from lakestream.table.rewriting.distinct import THETA, BadSketch, KeySketch
from lakestream.table.rewriting.folding import KEY_COLUMNS
from lakestream.table.rewriting.rewriter import Rewriter
from lakestream.table.schema import frontier_text, parse_frontier
from lakestream.table.view import View

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A larger statistics file is not read: what another engine put into it is not taken over."""
_NDV: Final = "ndv"
"""The one property that engines look at."""
_FRONTIER: Final = "lakestream.frontier"
_COUNTED_AT: Final = "lakestream.counted-at-ms"
_COUNTED_ROWS: Final = "lakestream.counted-rows"
_CHECKSUM: Final = "lakestream.crc32c"


@dataclass(frozen=True, slots=True)
class Known:
    """What a sketch of ours says of itself."""

    ndv: int
    frontier: tuple[int, ...]
    counted_at_ms: int
    counted_rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Count:
    """What is to be read: rows that `known` does not know, which are in some of the files; None: all rows."""

    known: Known | None
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    ndv: int
    files: int
    row_count: int


def known_sketch(view: View) -> Known | None:
    """None: the view shows none of ours, or one that cannot be true of this table."""
    blobs = () if view.statistics is None else view.statistics.blobs
    for blob in blobs:
        if not _is_of_keys(view, blob):
            continue
        found = _parsed(blob.properties)
        if found is not None and not falls(found.frontier, view.frontier):
            return found
    return None


def plan_count(view: View, shares: Shares, interval_ms: int, now_ms: int) -> Count | None:
    """None: it is not wanted, not time yet, or nothing has changed."""
    if interval_ms == UNLIMITED or view.snapshot_id is None:
        return None
    known, rows = known_sketch(view), _rows(view)
    if known is None or 2 * rows < known.counted_rows:
        return Count(None, tuple(view.files)) if known is None or _is_due(known, interval_ms, now_ms) else None
    if not _is_due(known, interval_ms, now_ms) or (known.frontier == view.frontier and known.ndv <= rows):
        return None
    return Count(known, _newer(view, shares, known.frontier))


async def count_keys(lake: Lake, rewriter: Rewriter, view: View, planned: Count) -> Counted | None:
    """Counts, stores and commits. The table may move on meanwhile, and what was counted stays true of what it was
    counted from; None: somebody else has changed the statistics. Raises `NotText`."""
    now_ms = lake.runtime.clock.now_ms()
    stored = await _load(lake, view)
    begun = _begin(view, planned, stored)
    known = None if begun is None else planned.known
    sketch = begun or KeySketch()
    files = planned.files if known is not None else tuple(view.files)
    deleted = await rewriter.deleted(view.deletes)
    for file in files:
        await rewriter.read(file, deleted, KEY_COLUMNS, sketch.add)
    data, estimate = sketch.result()
    ndv = min(estimate, _rows(view))
    properties = {
        _NDV: str(ndv),
        _FRONTIER: frontier_text(view.frontier),
        _COUNTED_AT: str(now_ms),
        _COUNTED_ROWS: str(sketch.row_count + (0 if known is None else known.counted_rows)),
        _CHECKSUM: str(crc32c(data)),
    }
    blob = Blob(THETA, _key_fields(view), view.snapshot_id or 0, view.sequence_number, properties)
    kept = [each for each in stored if each.blob.kind == THETA and not _is_of_keys(view, each.blob)]
    done = await _put_in_place(lake, view, [*kept, StoredBlob(blob, data)])
    return Counted(ndv, len(files), sketch.row_count) if done else None


def _is_due(known: Known, interval_ms: int, now_ms: int) -> bool:
    return not still_waits(now_ms, known.counted_at_ms, interval_ms)


def _is_of_keys(view: View, blob: Blob) -> bool:
    return blob.kind == THETA and tuple(blob.fields) == _key_fields(view)


def _key_fields(view: View) -> tuple[int, ...]:
    return (view.shape.field_id("_key"),)


def _parsed(properties: Mapping[str, str]) -> Known | None:
    try:
        numbers = [int(properties[name]) for name in (_NDV, _COUNTED_AT, _COUNTED_ROWS, _CHECKSUM)]
        frontier = parse_frontier(properties[_FRONTIER])
    except (KeyError, ValueError):
        return None
    ndv, counted_at_ms, counted_rows, checksum = numbers
    return Known(ndv, frontier, counted_at_ms, counted_rows, checksum) if min(numbers) >= 0 else None


def _rows(view: View) -> int:
    """Deleted ones among them: a delete file may name rows that are no longer there."""
    return sum(file.record_count for file in view.files)


def _newer(view: View, shares: Shares, start: Sequence[int]) -> tuple[DataFile, ...]:
    """The files that may hold rows at or beyond `start`."""
    known = dict(enumerate(start))
    return tuple(
        file
        for file in view.files
        if any(share.offset_max >= known.get(index, 0) for index, share in shares.of(file, len(view.frontier)).items())
    )


async def _load(lake: Lake, view: View) -> list[StoredBlob]:
    """What the view's statistics file holds; nothing of one that is not in the table's folder, too large or damaged."""
    found = view.statistics
    if found is None or not 0 < found.size_bytes <= MAX_FILE_BYTES:
        return []
    key = key_in(lake.objects, found.path)
    inside = view.location.removeprefix(lake.objects.url + "/") + "/"
    if key is None or not key.startswith(inside) or ".." in key.split("/"):
        return []
    try:
        return read_puffin(found.path, bytes(await lake.objects.get_range(key, 0, found.size_bytes, once=True)))
    except (CorruptObject, ObjectMissing):
        return []


def _begin(view: View, planned: Count, stored: Sequence[StoredBlob]) -> KeySketch | None:
    """The sketch to go on with; None: there is none to be trusted."""
    known = planned.known
    for each in stored:
        if known is None or not _is_of_keys(view, each.blob) or each.codec is not None:
            continue
        if _parsed(each.blob.properties) != known or crc32c(each.data) != known.checksum:
            continue
        sketch = KeySketch(known.frontier)
        try:
            sketch.join(each.data)
        except BadSketch:
            continue
        return sketch
    return None


async def _put_in_place(lake: Lake, begun: View, blobs: Sequence[StoredBlob]) -> bool:
    """One file, then one commit. A crash, or an outcome that stays unknown (`Unavailable`), leaves at most the file:
    nothing else is ever named as it is."""
    data, footer_bytes = write_puffin(blobs)
    name = f"_iceberg/{begun.snapshot_id}-{lake.runtime.new_id()}.stats"
    key = f"{begun.location.removeprefix(lake.objects.url + '/')}/{name}"
    await lake.objects.put(key, [data])
    statistics = StatisticsFile(
        f"{begun.location}/{name}", len(data), footer_bytes, tuple(stored.blob for stored in blobs)
    )
    view = begun
    for _ in range(lake.settings.max_commit_attempts):
        try:
            await lake.catalog.describe(view, statistics)
        except Conflict:
            view = await lake.catalog.load(begun.topic_id)
            if view.statistics != begun.statistics or view.sequence_number < begun.sequence_number:
                break
        else:
            return True
    await lake.delete([key])
    return False
