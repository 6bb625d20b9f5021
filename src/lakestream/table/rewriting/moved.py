"""Delete files after a move of their bucket: they name data files by full addresses. Blocking."""

import json
import struct
from collections.abc import Callable
from io import BytesIO
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakestream.errors import CorruptObject

_PATH: Final = "file_path"
_NAMED: Final = "referenced-data-file"
_MAGIC: Final = b"PFA1"
_END: Final = struct.Struct("<I4s4s")


def moved_position_deletes(name: str, data: bytes, move: Callable[[str], str]) -> bytes:
    """A Parquet file of (path, position) pairs with other paths."""
    try:
        rows = pq.read_table(pa.BufferReader(data))
        paths = rows.column(_PATH)
        # Few files, many rows: each is moved once.
        moved = {path: move(path) for path in paths.unique().to_pylist()}
        column = pa.array([moved[path] for path in paths.to_pylist()], paths.type)
        changed = rows.set_column(rows.schema.get_field_index(_PATH), rows.schema.field(_PATH), column)
        into = BytesIO()
        pq.write_table(changed, into, compression="zstd")
    except (pa.ArrowException, OSError, KeyError) as error:
        raise CorruptObject(f"{name} is no file of deleted rows that can be read: {error}") from error
    return into.getvalue()


def moved_vectors(name: str, data: bytes, move: Callable[[str], str]) -> bytes:
    """A Puffin file of deletion vectors: they stay where they are in it, their footer names other files."""
    length, flags, magic = _END.unpack(data[-_END.size :]) if len(data) > _END.size else (0, b"", b"")
    start = len(data) - _END.size - length
    if magic != _MAGIC or any(flags) or data[start - len(_MAGIC) : start] != _MAGIC:
        raise CorruptObject(f"{name} is no Puffin file that can be read")
    try:
        footer = json.loads(data[start : start + length])
        for blob in footer["blobs"]:
            properties = blob.get("properties", {})
            if _NAMED in properties:
                properties[_NAMED] = move(properties[_NAMED])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptObject(f"the footer of {name} cannot be read: {error}") from error
    payload = json.dumps(footer, separators=(",", ":")).encode()
    return data[:start] + payload + _END.pack(len(payload), flags, magic)
