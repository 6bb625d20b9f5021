"""How many different keys there are, about: theta sketches, as Iceberg's statistics files hold them.

A sketch is of the keys' bytes with the default seed, so those of other engines and ours count a key once that is in
both. It depends on the set of keys alone, not on their order or on how often they were added.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasketches import compact_theta_sketch, theta_union, update_theta_sketch

from lakestream.table.parquet.arrow import places_from_arrow

THETA: Final = "apache-datasketches-theta-v1"
"""What Iceberg calls such a blob."""
MAX_SKETCH_BYTES: Final = 1024 * 1024
"""Ours have 32 KiB."""
_CHUNK_KEYS: Final = 65_536


class NotText(Exception):
    """The library hashes text only: of keys that are not UTF-8 there is no sketch."""


class BadSketch(Exception):
    """These bytes are none."""


class KeySketch:
    """Takes 64 KiB, however many keys."""

    def __init__(self, start: Sequence[int] = ()) -> None:
        """Rows of partition p below offset `start[p]` are passed over."""
        self._start = np.asarray(start, np.int64)
        self._new = update_theta_sketch()
        self._union = theta_union()
        self.row_count = 0
        """Rows that were added, with a key or without."""

    def join(self, data: bytes) -> None:
        """Adds the keys of another sketch. Raises `BadSketch`."""
        if len(data) > MAX_SKETCH_BYTES:
            raise BadSketch(f"{len(data)} bytes are too many for a sketch")
        try:
            self._union.update(compact_theta_sketch.deserialize(data))
        except (ValueError, IndexError, RuntimeError) as error:
            raise BadSketch(f"a sketch cannot be read: {error}") from error

    def add(self, rows: pa.Table) -> None:
        """Rows with `folding.KEY_COLUMNS`, in any order. Raises `NotText`."""
        partition, offset, _ = places_from_arrow(rows)
        start = np.zeros(max(len(self._start), int(partition.max(initial=0)) + 1), np.int64)
        start[: len(self._start)] = self._start
        new = offset >= start[partition]
        self.row_count += int(new.sum())
        keys = pc.unique(rows.column("_key").filter(pa.array(new))).drop_null()
        try:
            text = keys.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise NotText("a key is not UTF-8 text") from error
        for at in range(0, len(text), _CHUNK_KEYS):
            deque(map(self._new.update, text.slice(at, _CHUNK_KEYS).to_pylist()), maxlen=0)

    def result(self) -> tuple[bytes, int]:
        """The sketch, and about how many different keys are in it."""
        self._union.update(self._new)
        found = self._union.get_result()
        return found.serialize(), round(found.get_estimate())
