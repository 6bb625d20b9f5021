"""Which small files of a table are merged. Pure.

Neighbours only: files of one partition and offset window that follow each other, and files that many partitions share.
A run is merged when its first file is not larger than the rest together, so that a row is rewritten about as often as
its file grows by half: the cost of all merges is logarithmic in the number of files.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from lakestream.frontier.settings import PipelineSettings
from lakestream.model import DataFile
from lakestream.table.layout import Layout, RowOrder
from lakestream.table.schema import OFFSET_WINDOW, STREAM_SPEC_ID, UNPARTITIONED

MAX_FILES: Final = 256
"""Of one run."""
_OUR_SPECS: Final = (UNPARTITIONED.spec_id, STREAM_SPEC_ID)

Run = tuple[DataFile, ...]
_Place = tuple[int, int, tuple[object, ...]]


def plan_merges(
    files: Sequence[DataFile],
    settings: PipelineSettings,
    layout: Layout | None = None,
    order: RowOrder | None = None,
) -> list[Run]:
    """Runs of files, each to become one or few, those that save most first. With an owner's layout or order also large
    files that lie otherwise, each alone: a merge brings its rows there."""
    places: dict[_Place | None, list[DataFile]] = {}
    for file in files:
        places.setdefault(_place(file), []).append(file)
    found: list[Run] = []
    for place, group in places.items():
        listed = sorted(group, key=_age if place is None else _position)
        for run in _small_runs(listed, settings, layout):
            found += _cut(run, settings)
        found += [(file,) for file in listed if _is_large(file, settings) and is_elsewhere(file, layout, order)]
    return sorted(found, key=lambda run: (-len(run), run[0].path))


def pack(files: Sequence[DataFile], settings: PipelineSettings) -> list[Run]:
    """All of the files in runs of neighbours, each as large as one rewrite takes."""
    places: dict[_Place | None, list[DataFile]] = {}
    for file in files:
        places.setdefault(_place(file), []).append(file)
    found: list[Run] = []
    for place, group in places.items():
        run: list[DataFile] = []
        size_bytes = 0
        for file in sorted(group, key=_age if place is None else _position):
            if run and (size_bytes + file.size_bytes > settings.max_rewrite_bytes or len(run) >= MAX_FILES):
                found.append(tuple(run))
                run, size_bytes = [], 0
            run.append(file)
            size_bytes += file.size_bytes
        found.append(tuple(run))
    return found


def is_ours(file: DataFile, layout: Layout | None = None) -> bool:
    """Whether it lies as we write files: what an owner has laid out otherwise is left so."""
    return file.spec_id in _OUR_SPECS or (layout is not None and file.spec_id == layout.spec_id)


def is_elsewhere(file: DataFile, layout: Layout | None, order: RowOrder | None) -> bool:
    """Whether it lies, or its rows do, as streams have them, where the owner wants it otherwise. Files in an order of
    the owner's stay in it, also if that is an earlier one."""
    if layout is not None and file.spec_id in _OUR_SPECS:
        return True
    is_unordered = not file.order_id and file.partition_min is not None and file.partition_min == file.partition_max
    return order is not None and is_unordered and is_ours(file, layout)


def _is_large(file: DataFile, settings: PipelineSettings) -> bool:
    return file.size_bytes >= settings.small_file_bytes


def _place(file: DataFile) -> _Place | None:
    """Partition, offset window and place in the owner's layout; None: of several, or it is not known."""
    low, high = file.offset_min, file.offset_max
    if file.partition_min is None or file.partition_min != file.partition_max or low is None or high is None:
        return None
    window = low // OFFSET_WINDOW
    return (file.partition_min, window, file.place) if window == high // OFFSET_WINDOW else None


def _position(file: DataFile) -> tuple[int, str]:
    return file.offset_min or 0, file.path


def _age(file: DataFile) -> tuple[int, str]:
    return file.timestamp_max_ms or 0, file.path


def _small_runs(
    order: Sequence[DataFile], settings: PipelineSettings, layout: Layout | None
) -> Iterator[list[DataFile]]:
    """What lies between the files that stay as they are: large ones, and those in a spec of the owner's."""
    run: list[DataFile] = []
    for file in order:
        if not _is_large(file, settings) and is_ours(file, layout):
            run.append(file)
            continue
        yield run
        run = []
    yield run


def _cut(run: Sequence[DataFile], settings: PipelineSettings) -> Iterator[Run]:
    start = 0
    while len(run) - start >= settings.min_merge_files:
        taken: list[DataFile] = []
        size_bytes = 0
        for file in run[start : start + MAX_FILES]:
            if taken and size_bytes + file.size_bytes > settings.max_rewrite_bytes:
                break
            taken.append(file)
            size_bytes += file.size_bytes
        if len(taken) >= settings.min_merge_files and 2 * taken[0].size_bytes <= size_bytes:
            yield tuple(taken)
            start += len(taken)
        else:
            start += 1
