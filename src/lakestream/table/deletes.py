"""Rows that an engine has deleted without rewriting their file: (file, position) pairs."""

import asyncio
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.errors import StorageError
from lakestream.model import PositionDeletes
from lakestream.table.cache import SharedCache
from lakestream.table.files import same_form
from lakestream.table.parquet import ParquetFiles

Positions = npt.NDArray[np.int64]
ByFile = dict[str, Positions]
_NONE: Final = np.empty(0, np.int64)


class Deleted:
    """The deleted rows of one view."""

    def __init__(self, files: Sequence[tuple[str, ByFile]]) -> None:
        self._files = files

    def token(self, path: str) -> tuple[str, ...]:
        """Names the delete files that concern a data file: what was read under another token is not the same."""
        path = same_form(path)
        return tuple(name for name, rows in self._files if path in rows)

    def kept(self, path: str, first_row: int, row_count: int) -> npt.NDArray[np.bool_] | None:
        """Which of the file's rows [first_row, first_row + row_count) are there; None: all."""
        path = same_form(path)
        kept = None
        for _, rows in self._files:
            positions = rows.get(path, _NONE) - first_row
            positions = positions[(positions >= 0) & (positions < row_count)]
            if len(positions):
                kept = np.ones(row_count, np.bool_) if kept is None else kept
                kept[positions] = False
        return kept


async def load_deletes(deletes: Sequence[PositionDeletes], files: ParquetFiles, cache: SharedCache) -> Deleted:
    """Reads the delete files, those not read before. `StorageError` if one of them cannot be applied: rows that
    somebody deleted would come back."""
    for delete in deletes:
        if delete.trouble:
            raise StorageError(delete.trouble)

    async def one(path: str) -> tuple[str, ByFile]:
        return path, await files.read_all(path, ["file_path", "pos"], _by_file)

    def size_bytes(loaded: tuple[str, ByFile]) -> int:
        return sum(rows.nbytes + len(path) for path, rows in loaded[1].items())

    paths = [delete.path for delete in deletes]
    loaded = await asyncio.gather(
        *(cache.get(("deletes", path), lambda path=path: one(path), size_bytes) for path in paths)  # type: ignore[misc]
    )
    return Deleted(loaded)


def _by_file(table: pa.Table) -> ByFile:
    paths = pc.dictionary_encode(table.column("file_path").cast(pa.string())).combine_chunks()
    positions = table.column("pos").cast(pa.int64()).to_numpy()
    codes = paths.indices.to_numpy()
    found: ByFile = {}
    for code, name in enumerate(paths.dictionary.to_pylist()):
        rows = positions[codes == code]
        path = same_form(name)
        found[path] = np.sort(np.concatenate([found[path], rows])) if path in found else np.sort(rows)
    return found
