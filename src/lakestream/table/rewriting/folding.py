"""The newest record of each key, among rows of a table. Exact: keys are compared byte by byte."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.table.parquet.arrow import numbers_in, places_from_arrow
from lakestream.table.rewriting.rewriter import Keep
from lakestream.table.shape import KIND_TYPED

KEY_COLUMNS: Final = ("_stream_partition", "_offset", "_key")
_SETTLE_ROWS: Final = 65_536


class Newest:
    """Per partition and key the highest offset of the rows that were added. Records without a key have no newer."""

    def __init__(self) -> None:
        self._newest = pa.table({"key": pa.array([], pa.binary()), "offset": pa.array([], pa.int64())})
        self._added: list[pa.Table] = []
        self._added_rows = 0
        self._has_new_keys = False

    def add(self, rows: pa.Table) -> None:
        """Rows with `KEY_COLUMNS`, in any order."""
        found = pa.table({"key": _keys(rows), "offset": places_from_arrow(rows)[1]})
        self._has_new_keys = True
        self._add(found.filter(pc.is_valid(found.column("key"))))

    def add_known(self, rows: pa.Table) -> None:
        """The same for those of the rows whose keys were added before, by either: there never are more keys."""
        if self._has_new_keys:
            self._settle()
        found = pa.table({"key": _keys(rows), "offset": places_from_arrow(rows)[1]})
        self._add(found.filter(pc.is_in(found.column("key"), value_set=self._newest.column("key"))))

    def _add(self, found: pa.Table) -> None:
        self._added.append(found)
        self._added_rows += found.num_rows
        # Only when as much came as there is: each key is then looked at a few times, however many come.
        if self._added_rows > max(_SETTLE_ROWS, self._newest.num_rows):
            self._settle()

    def _settle(self) -> None:
        found = pa.concat_tables([self._newest, *self._added])
        newest = found.group_by("key", use_threads=False).aggregate([("offset", "max")])
        keys, offsets = newest.column("key"), newest.column("offset_max")
        self._newest = pa.table({"key": keys.combine_chunks(), "offset": offsets.combine_chunks()})
        self._added, self._added_rows, self._has_new_keys = [], 0, False

    def keep(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Those that none of the added supersedes."""
        if self._added:
            self._settle()
        keep = np.ones(rows.num_rows, np.bool_)
        if not self._newest.num_rows:
            return keep
        places = pc.index_in(_keys(rows), value_set=self._newest.column("key"))
        known = np.asarray(pc.is_valid(places).to_numpy(zero_copy_only=False), np.bool_)
        newest = self._newest.column("offset").to_numpy()[places.drop_null().to_numpy()]
        keep[known] = places_from_arrow(rows)[1][known] >= newest
        return keep


def keeper(newest: Newest, below: Mapping[int, int]) -> Keep:
    """Rows that nothing supersedes, without tombstones at offsets below those given for their partitions."""

    def keep(rows: pa.Table) -> npt.NDArray[np.bool_]:
        kept = newest.keep(rows)
        return kept & _without_tombstones(rows, below) if below else kept

    return keep


def _without_tombstones(rows: pa.Table, below: Mapping[int, int]) -> npt.NDArray[np.bool_]:
    partition, offset, _ = places_from_arrow(rows)
    limits = np.zeros(max([*below, int(partition.max(initial=0))]) + 1, np.int64)
    for index, limit in below.items():
        limits[index] = limit
    gone = rows.column("_value").is_null().to_numpy(zero_copy_only=False)
    # The value of such a row is in its columns.
    gone &= numbers_in(rows.column("_kind").combine_chunks()) != KIND_TYPED
    gone &= rows.column("_key").is_valid().to_numpy(zero_copy_only=False)
    keep: npt.NDArray[np.bool_] = ~(gone & (offset < limits[partition]))
    return keep


def _keys(rows: pa.Table) -> pa.Array:
    """Partition and key as one; null where there is no key."""
    partition = np.ascontiguousarray(places_from_arrow(rows)[0].astype(">i4"))
    prefix = pa.Array.from_buffers(pa.binary(4), len(partition), [None, pa.py_buffer(partition)])
    key = rows.column("_key").combine_chunks() if rows.num_rows else pa.array([], pa.binary())
    return pc.binary_join_element_wise(prefix.cast(pa.binary()), key.cast(pa.binary()), b"")
