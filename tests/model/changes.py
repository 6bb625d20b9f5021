"""Changes that several actors make."""

from collections.abc import Sequence

from .cells import Phase, Shape, Status

DECIDED = (Status.NONE, Status.ACKED, Status.FAILED, Status.ORPHANED)


def settle(shape: Shape, cells: list[int], flush: int) -> None:
    """A flush is over once every partition is decided; its generation matters as long as a request may land."""
    statuses = [cells[cell] for cell in shape.status[flush]]
    if cells[shape.phase[flush]] != Phase.IDLE and all(status in DECIDED for status in statuses):
        cells[shape.phase[flush]] = Phase.OVER
        if Status.ORPHANED not in statuses:
            cells[shape.stamp[flush]] = cells[shape.upload[flush]] = 0


def drop_extents(shape: Shape, cells: list[int], partition: int, frontier: int) -> None:
    for f in shape.flushes:
        if cells[shape.place[f][partition]] <= frontier:
            cells[shape.extent[f][partition]] = 0


def names(shape: Shape, cells: Sequence[int], flush: int, key: int, partition: int) -> bool:
    """Whether an extent of the partition names the flush's object."""
    return cells[shape.extent[flush][partition]] == key + 1


def remove_object(shape: Shape, cells: list[int], flush: int, key: int) -> str:
    """Takes the object out of the bucket; what is wrong about that. Later objects of the flush move up one place."""
    if any(names(shape, cells, flush, key, p) for p in shape.partitions):
        return "an object is deleted that an extent names"
    keys = [k for k in shape.objects if k != key]
    moved = {old: new for new, old in enumerate(keys)} | {key: shape.gone, shape.gone: shape.gone}
    objects = [cells[shape.object[flush][k]] for k in keys] + [0]
    sections = [[cells[cell] for cell in shape.section[flush][k]] for k in keys] + [[0] * len(shape.partitions)]
    for k in shape.objects:
        cells[shape.object[flush][k]] = objects[k]
        for p in shape.partitions:
            cells[shape.section[flush][k][p]] = sections[k][p]
    if cells[shape.stamp[flush]] and cells[shape.phase[flush]] != Phase.STAMPED:
        cells[shape.upload[flush]] = moved[cells[shape.upload[flush]]]
    for p in shape.partitions:
        if cells[shape.extent[flush][p]]:
            cells[shape.extent[flush][p]] = moved[cells[shape.extent[flush][p]] - 1] + 1
    return ""


def clear_file(shape: Shape, cells: list[int], i: int) -> None:
    cells[shape.condemned[i]] = 0
    for p in shape.partitions:
        cells[shape.start[i][p]] = cells[shape.end[i][p]] = 0
