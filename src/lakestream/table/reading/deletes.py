"""Rows that an engine has deleted without rewriting their file: (file, position) pairs."""

import asyncio
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from lakestream.errors import StorageError
from lakestream.model import PositionDeletes
from lakestream.objects.paths import same_form
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletion_vectors import Vectors, check_size, parse_vectors

Positions = npt.NDArray[np.int64]
ByFile = dict[str, Positions] | Vectors
_VECTORS_AT_ONCE: Final = 4
"""Puffin files in memory; each is read as a whole."""


class Deleted:
    """The deleted rows of one view."""

    def __init__(self, files: Sequence[tuple[str, ByFile]]) -> None:
        self._files = files

    def token(self, path: str) -> tuple[str, ...]:
        """Names the delete files that concern a data file: what was read under another token is not the same."""
        path = same_form(path)
        return tuple(name for name, rows in self._files if path in rows)

    def places(self, path: str) -> Positions:
        """The deleted rows of a data file, in order, each once."""
        path = same_form(path)
        found = [_numbers(rows[path]) for _, rows in self._files if path in rows]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def kept(self, path: str, first_row: int, row_count: int) -> npt.NDArray[np.bool_] | None:
        """Which of the file's rows [first_row, first_row + row_count) are there; None: all."""
        path = same_form(path)
        kept = None
        for _, rows in self._files:
            found = rows.get(path)
            positions = None if found is None else _between(found, first_row, row_count)
            if positions is not None and len(positions):
                kept = np.ones(row_count, np.bool_) if kept is None else kept
                kept[positions] = False
        return kept


def _numbers(found: Positions | BitMap64) -> Positions:
    return np.asarray(found.to_array(), np.int64) if isinstance(found, BitMap64) else found


def _between(found: Positions | BitMap64, first_row: int, row_count: int) -> Positions:
    """Those in [first_row, first_row + row_count), counted from there."""
    if isinstance(found, BitMap64):
        wanted = BitMap64()
        wanted.add_range(first_row, first_row + row_count)
        return np.asarray((found & wanted).to_array(), np.int64) - first_row
    positions = found - first_row
    return positions[(positions >= 0) & (positions < row_count)]


async def load_deletes(deletes: Sequence[PositionDeletes], files: ParquetFiles, cache: SharedCache) -> Deleted:
    """Reads the delete files, those not read before. `StorageError` if one of them cannot be applied: rows that
    somebody deleted would come back."""
    if not deletes:
        return Deleted(())
    plain: list[str] = []
    vectors: dict[str, list[PositionDeletes]] = {}
    for delete in deletes:
        if delete.trouble:
            raise StorageError(delete.trouble)
        if delete.vector is None:
            plain.append(delete.path)
        else:
            check_size(delete, delete.vector)
            vectors.setdefault(delete.path, []).append(delete)
    turns = asyncio.Semaphore(_VECTORS_AT_ONCE)

    async def one(path: str) -> tuple[str, ByFile]:
        return path, await files.read_all(path, ["file_path", "pos"], _by_file)

    async def some(path: str, named: list[PositionDeletes]) -> tuple[str, ByFile]:
        places = [delete.vector for delete in named if delete.vector is not None]
        async with turns:
            data = await files.read_bytes(path, max(place.file_bytes for place in places))
            found = await asyncio.to_thread(parse_vectors, path, data, named)
        return f"{path} {' '.join(str(place.start) for place in places)}", found

    loaded = await asyncio.gather(
        *(cache.get(("deletes", path), lambda path=path: one(path), _size_bytes) for path in plain),  # type: ignore[misc]
        *(
            cache.get(("vectors", *named), lambda path=path, named=named: some(path, named), _size_bytes)  # type: ignore[misc]
            for path, named in vectors.items()
        ),
    )
    return Deleted(loaded)


def _size_bytes(loaded: tuple[str, ByFile]) -> int:
    return sum(
        len(path) + (len(rows.serialize()) if isinstance(rows, BitMap64) else rows.nbytes)
        for path, rows in loaded[1].items()
    )


def _by_file(table: pa.Table) -> ByFile:
    paths = pc.dictionary_encode(table.column("file_path").cast(pa.string())).combine_chunks()
    positions = table.column("pos").cast(pa.int64()).to_numpy()
    codes = paths.indices.to_numpy()
    found: dict[str, Positions] = {}
    for code, name in enumerate(paths.dictionary.to_pylist()):
        rows = positions[codes == code]
        path = same_form(name)
        found[path] = np.sort(np.concatenate([found[path], rows])) if path in found else np.sort(rows)
    return found
