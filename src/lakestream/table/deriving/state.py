"""The rows of a derived table, found by key and changed bucket by bucket.

A bucket has data files and at most one file of deleted places, which is written anew whenever it changes. A row that
gets another value is deleted where it is and added to a new file. That file takes in what is worth it: files of which
more than a fifth is deleted, and small ones once a few of a size have come together, so that a row is written again
about as often as its bucket doubles. Everything that one step changes is one commit.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.model import DataFile, PositionDeletes
from lakestream.objects.store import ObjectStore
from lakestream.table.deriving.building import Built, build_deletes, build_rows
from lakestream.table.deriving.changes import RowChanges
from lakestream.table.deriving.keys import buckets_of, key_bytes
from lakestream.table.deriving.naming import parse_derived
from lakestream.table.deriving.recipe import KEY, DerivedShape
from lakestream.table.parquet.arrow import canonical
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletes import Deleted, load_deletes
from lakestream.table.reading.rows import DecodedGroup, RowReader
from lakestream.table.view import View

Places = npt.NDArray[np.int64]

DELETED_SHARE: Final = 0.2
"""A file with more of its rows deleted is written anew."""
_MERGED_FILES: Final = 3
"""Small files that are taken into a new one, at least."""
_CACHE_BYTES: Final = 16 * 1024 * 1024
_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Changed:
    """What takes which files' place. `added` and `deleted`: rows that came and went; of one that got another value
    both."""

    built: tuple[Built, ...]
    removed: frozenset[str]
    added: int
    deleted: int


@dataclass(slots=True)
class _Bucket:
    """One bucket under way. `dead`: by file, the deleted places, those of before included."""

    number: int
    files: Sequence[DataFile]
    deletes: Sequence[PositionDeletes]
    rows: pa.Table
    gone: pa.Table
    dead: dict[str, Places] = field(default_factory=dict)
    newly_dead: int = 0


class StateFiles:
    """Holds the rows that one bucket writes, and the keys of one row group, in memory."""

    def __init__(self, store: ObjectStore, *, max_bytes: int) -> None:
        """`max_bytes`: rows that one step may write anew, uncompressed; files are half as large at most."""
        self._files = ParquetFiles(store)
        self._cache = SharedCache(_CACHE_BYTES)
        self._rows = RowReader(self._files, self._cache)
        self._max_bytes = max_bytes

    async def apply(self, view: View, derived: DerivedShape, changes: RowChanges) -> Changed:
        """What the changes make of the table's files. Stores nothing."""
        built: list[Built] = []
        removed: set[str] = set()
        added = deleted = 0
        left_bytes = self._max_bytes
        for bucket in await asyncio.to_thread(_split, view, derived, changes):
            had = await load_deletes(bucket.deletes, self._files, self._cache)
            for file in bucket.files:
                bucket.dead[file.path] = had.places(file.path)
            await self._match(bucket, had, derived, changes.record_keys)
            added += bucket.rows.num_rows
            deleted += bucket.newly_dead
            merged = await self._merged(bucket, derived, left_bytes)
            taken = [await self._live(file, bucket.dead[file.path], derived) for file in merged]
            rows = pa.concat_tables([bucket.rows, *taken])
            left_bytes -= sum(table.nbytes for table in taken)
            built += await asyncio.to_thread(
                build_rows, rows, bucket.number, derived, view.compression, self._max_bytes // 2
            )
            gone = {file.path for file in (*merged, *_empty(bucket))}
            removed |= gone
            left = {file.path: bucket.dead[file.path] for file in bucket.files if file.path not in gone}
            left = {path: places for path, places in left.items() if len(places)}
            if bucket.newly_dead or len(bucket.deletes) > 1 or any(len(had.places(path)) for path in gone):
                removed |= {each.path for each in bucket.deletes}
                if left:
                    built.append(await asyncio.to_thread(build_deletes, left, bucket.number, view.compression))
        return Changed(tuple(built), frozenset(removed), added, deleted)

    async def _match(self, bucket: _Bucket, had: Deleted, derived: DerivedShape, record_keys: pa.Array) -> None:
        """Finds the rows that are changed or gone. With an order column what is older than the row that is there, in
        another partition, is left out of the changes."""
        if not (bucket.rows.num_rows or bucket.gone.num_rows or len(record_keys)):
            return
        order = derived.recipe.order
        wanted = [*derived.recipe.keys, *([order] if order else []), *([KEY] if len(record_keys) else [])]
        compared = [*derived.recipe.keys, *([order] if order else [])]
        changed = pa.concat_tables(
            [bucket.rows.select(dict.fromkeys(compared)), bucket.gone.select(dict.fromkeys(compared))]
        )
        match = _Match(changed, derived, record_keys)
        for file in bucket.files:
            found_places = [bucket.dead[file.path]]
            for group in await self._rows.groups(file):
                row_group = group.row_group
                kept = had.kept(file.path, row_group.first_row, row_group.row_count)
                found = await self._files.read(
                    row_group,
                    group.footer,
                    [*dict.fromkeys(wanted)],
                    lambda table, kept=kept: match.hits(
                        canonical(table, [*dict.fromkeys(wanted)], derived.columns), kept
                    ),  # type: ignore[misc]
                )
                found_places.append(found + row_group.first_row)
            bucket.dead[file.path] = np.concatenate(found_places)
        bucket.rows = bucket.rows.filter(pa.array(match.holds[: bucket.rows.num_rows]))
        for path, places in bucket.dead.items():
            bucket.newly_dead += len(places) - len(had.places(path))
            bucket.dead[path] = np.sort(places)

    async def _merged(self, bucket: _Bucket, derived: DerivedShape, left_bytes: int) -> list[DataFile]:
        """The files that go into the new one, as far as memory goes."""
        if not (bucket.rows.num_rows or bucket.newly_dead):
            return []
        empty = {file.path for file in _empty(bucket)}
        files = [file for file in bucket.files if file.path not in empty]
        worn = [file for file in files if len(bucket.dead[file.path]) > DELETED_SHARE * file.record_count]
        total = bucket.rows.nbytes // 4 + sum(file.size_bytes for file in worn)
        small: list[DataFile] = []
        for file in sorted(files, key=lambda file: (file.size_bytes, file.path)):
            if file in worn:
                continue
            if file.size_bytes > max(total, _SMALL_BYTES):
                break
            small.append(file)
            total += file.size_bytes
        chosen: list[DataFile] = []
        for file in (*worn, *(small if len(small) + len(worn) >= _MERGED_FILES else ())):
            size_bytes = sum(group.row_group.size_bytes for group in await self._rows.groups(file))
            if size_bytes <= left_bytes:
                chosen.append(file)
                left_bytes -= size_bytes
        return chosen

    async def _live(self, file: DataFile, dead: Places, derived: DerivedShape) -> pa.Table:
        shape = derived.columns
        kept = np.ones(file.record_count, np.bool_)
        kept[dead] = False
        return pa.concat_tables(
            [await self._live_group(group, kept, shape.names, derived) for group in await self._rows.groups(file)]
        )

    async def _live_group(
        self, group: DecodedGroup, kept: npt.NDArray[np.bool_], names: Sequence[str], derived: DerivedShape
    ) -> pa.Table:
        row_group = group.row_group
        here = kept[row_group.first_row : row_group.first_row + row_group.row_count]
        return await self._files.read(
            row_group,
            group.footer,
            names,
            lambda table: canonical(table, names, derived.columns).filter(pa.array(here)),
        )


_SMALL_BYTES: Final = 16 * 1024
"""Files below this are always of one size."""


class _Match:
    """`holds`: which of the changed rows are newer than what was found so far."""

    def __init__(self, changed: pa.Table, derived: DerivedShape, record_keys: pa.Array) -> None:
        self._derived = derived
        self._keys = key_bytes(changed, derived.keys)
        self._record_keys = record_keys
        self._order = changed.column(derived.recipe.order).combine_chunks() if derived.recipe.order else None
        self.holds = np.ones(changed.num_rows, np.bool_)

    def hits(self, rows: pa.Table, kept: npt.NDArray[np.bool_] | None) -> Places:
        """The places of the rows, of those that are kept, that the changes delete. Blocking."""
        found = pc.index_in(key_bytes(rows, self._derived.keys), value_set=self._keys)
        hit = np.asarray(found.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        if kept is not None:
            hit &= kept
        if self._order is not None and hit.any():
            places = np.flatnonzero(hit)
            changed = found.take(pa.array(places)).to_numpy(zero_copy_only=False).astype(np.int64)
            here = rows.column(self._derived.recipe.order).combine_chunks().take(pa.array(places))
            newer = pc.fill_null(pc.greater(here, self._order.take(pa.array(changed))), False)
            older = np.asarray(newer.to_numpy(zero_copy_only=False), np.bool_)
            self.holds[changed[older]] = False
            hit[places[older]] = False
        if len(self._record_keys):
            marked = pc.is_in(rows.column(KEY).combine_chunks(), value_set=self._record_keys)
            also = np.asarray(marked.to_numpy(zero_copy_only=False), np.bool_)
            hit |= also if kept is None else also & kept
        return np.flatnonzero(hit)


def _split(view: View, derived: DerivedShape, changes: RowChanges) -> list[_Bucket]:
    """The buckets that the changes concern."""
    files: dict[int, list[DataFile]] = {}
    deletes: dict[int, list[PositionDeletes]] = {}
    for file in view.files:
        files.setdefault(_bucket(file.path), []).append(file)
    for delete in view.deletes:
        deletes.setdefault(_bucket(delete.path), []).append(delete)
    rows, gone = _by_bucket(changes.rows, derived), _by_bucket(changes.gone, derived)
    touched = {*rows, *gone, *(files if len(changes.record_keys) else ())}
    return [
        _Bucket(
            number,
            files.get(number, ()),
            deletes.get(number, ()),
            rows.get(number, changes.rows.slice(0, 0)),
            gone.get(number, changes.gone.slice(0, 0)),
        )
        for number in sorted(touched)
    ]


def _by_bucket(rows: pa.Table, derived: DerivedShape) -> Mapping[int, pa.Table]:
    if not rows.num_rows or not derived.recipe.buckets:
        return {0: rows} if rows.num_rows else {}
    numbers = buckets_of(rows, derived.keys[0], derived.recipe.buckets)
    return {int(number): rows.filter(pa.array(numbers == number)) for number in np.unique(numbers)}


def _bucket(path: str) -> int:
    found = parse_derived(path)
    if found is None:
        raise ValueError(f"{path} is no file that a derived table can have")
    return found.bucket


def _empty(bucket: _Bucket) -> list[DataFile]:
    return [file for file in bucket.files if len(bucket.dead[file.path]) >= file.record_count]
