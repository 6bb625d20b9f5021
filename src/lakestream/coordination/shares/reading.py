"""What was read of a partition's log, batch by batch: where each lies and whether members may have its records."""

import struct
from collections.abc import Sequence
from typing import Final

from lakestream.coordination.shares.acquiring import overlapping
from lakestream.coordination.shares.model import Acquired, LocatedBatch
from lakestream.objects import Buffer
from lakestream.records import walk
from lakestream.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from lakestream.stream import AbortedRange, Fetched

_BASE: Final = struct.Struct(">q")


def located(fetched: Fetched) -> list[LocatedBatch]:
    """Markers are nobody's, nor is what was aborted, where that is known."""
    found = []
    for number, part in enumerate(fetched.parts):
        for info in walk(part):
            (first,) = _BASE.unpack_from(part, info.position)
            is_aborted = bool(info.attributes & TRANSACTIONAL_BIT) and _is_aborted(
                fetched.aborted, info.producer_id, first
            )
            is_visible = not (is_aborted or info.attributes & CONTROL_BIT)
            end = first + info.last_offset_delta + 1
            found.append(LocatedBatch(first, end, number, info.position, info.length, is_visible))
    return found


def _is_aborted(aborted: Sequence[AbortedRange], producer_id: int, first: int) -> bool:
    return any(each.producer_id == producer_id and each.first_offset <= first < each.marker_offset for each in aborted)


def parts_with(fetched: Fetched, batches: Sequence[LocatedBatch], acquired: Sequence[Acquired]) -> list[Buffer]:
    """The bytes of the batches that have these records. Neighbours are not cut apart."""
    runs: list[tuple[int, int, int]] = []
    for batch in overlapping(batches, acquired):
        if runs and runs[-1][0] == batch.part and runs[-1][2] == batch.position:
            runs[-1] = (batch.part, runs[-1][1], batch.position + batch.length)
        else:
            runs.append((batch.part, batch.position, batch.position + batch.length))
    return [memoryview(fetched.parts[part])[start:end] for part, start, end in runs]
