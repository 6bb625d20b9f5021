"""Which files a late commit may take the place of. Pure.

While a plan's files are written, somebody else may commit a first part of the same ranges: the HTTP door does so for
an engine that loads the table. The plan's files hold those rows too, so they can take the place of the others' files in
the commit that adds them, if those are exactly the rows between the two views and nobody has changed them since.
"""

from collections.abc import Iterable, Sequence

from lakestream.frontier.moving.tiles.naming import DATA_FOLDER, parse_file_name
from lakestream.frontier.moving.tiles.plan import Range
from lakestream.frontier.moving.tiles.visible import Gap
from lakestream.model import DataFile
from lakestream.table.view import View


def replaceable(
    planned_on: View, now: View, ranges: Sequence[Range], gaps: Iterable[Gap] = ()
) -> tuple[DataFile, ...] | None:
    """The files of `now` that must go when `ranges`, planned on `planned_on`, are committed; empty if none of them has
    begun. None: they cannot be committed, and have to be planned again. `gaps`: offsets in the ranges without a row.

    Only while the frontier is below the end of every range: file names rely on it (`naming.FileBound`). A view's
    rows below its frontier are each there once, so if no file of the first view is gone, no delete was added and all
    that is new are files of ours with as many rows as the frontier has moved over offsets that have one, then these are
    those rows, untouched."""
    starts = {each.partition: each.start for each in ranges}
    moved = {index: end for index, end in enumerate(now.frontier) if end != frontier_of(planned_on, index)}
    if all(frontier_of(now, each.partition) == each.start for each in ranges):
        return ()
    if any(not each.start <= frontier_of(now, each.partition) < each.end for each in ranges):
        return None
    if not moved.keys() <= starts.keys() or frozenset(planned_on.deletes) != frozenset(now.deletes):
        return None
    known = {file.path for file in planned_on.files}
    new = tuple(file for file in now.files if file.path not in known)
    if len(now.files) - len(new) != len(known):
        return None
    expected = sum(end - starts[index] for index, end in moved.items())
    expected -= gap_count(gaps) - gap_count(gaps, now.frontier)
    if sum(file.record_count for file in new) != expected:
        return None
    inside = (min(moved), max(moved), min(starts[index] for index in moved), max(moved.values()) - 1)
    return new if all(_is_ours(now, file) and _lies_in(file, *inside) for file in new) else None


def gap_count(gaps: Iterable[Gap], frontier: Sequence[int] = ()) -> int:
    """How many offsets they are, from this frontier on."""
    count = 0
    for partition, start, end in gaps:
        at = frontier[partition] if partition < len(frontier) else 0
        count += max(0, end - max(start, at))
    return count


def frontier_of(view: View, partition: int) -> int:
    return view.frontier[partition] if partition < len(view.frontier) else 0


def _is_ours(view: View, file: DataFile) -> bool:
    """An engine that updates or deletes rows writes files under names of its own."""
    folder = f"{view.location}/{DATA_FOLDER}"
    return file.path.startswith(folder) and parse_file_name(file.path.removeprefix(folder)) is not None


def _lies_in(file: DataFile, partition_min: int, partition_max: int, offset_min: int, offset_max: int) -> bool:
    """What the manifest does not say is taken as outside."""
    if file.partition_min is None or file.partition_max is None or file.offset_min is None or file.offset_max is None:
        return False
    partitions = partition_min <= file.partition_min and file.partition_max <= partition_max
    return partitions and offset_min <= file.offset_min and file.offset_max <= offset_max
