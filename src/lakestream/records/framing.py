"""The id of its schema before a value, as Confluent's serializers write it: a zero byte, the id in four bytes."""

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lakestream.records.columns import Binary
from lakestream.records.layout import FRAME_BYTES

_ID_MOST: Final = (1 << 31) - 1


def framed_ids(values: Binary) -> npt.NDArray[np.int64]:
    """The id of the schema before each value; -1: there is none."""
    starts: npt.NDArray[Any] = values.offsets[:-1].astype(np.int64)
    framed = np.flatnonzero((np.diff(values.offsets) >= FRAME_BYTES) & (values.valid != 0))
    at = starts[framed]
    found = np.zeros(len(at), np.int64)
    for place in range(1, FRAME_BYTES):
        found = found << 8 | values.data[at + place]
    ids = np.full(len(starts), -1, np.int64)
    if len(at):
        ids[framed] = np.where(values.data[at] == 0, found, -1)
    return ids


def unknown_ids(values: Binary, known: Collection[int], most: int) -> frozenset[int]:
    """Those before values that are not known; of very many the most frequent."""
    found, counts = np.unique(framed_ids(values), return_counts=True)
    is_new = (found >= 0) & (found <= _ID_MOST) & ~np.isin(found, np.array([*known], np.int64))
    frequent = np.argsort(-counts[is_new], kind="stable")[:most]
    return frozenset(found[is_new][frequent].tolist())
