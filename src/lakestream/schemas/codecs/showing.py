"""One value at a time, for people."""

import json
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from lakestream.records.layout import FRAME_BYTES
from lakestream.schemas.codecs.installing import install
from lakestream.schemas.growing import BY_ID, grown
from lakestream.table.parquet.codec import decoded
from lakestream.table.shape import RAW, TableShape, ValueSchema

_LAST_ID: Final = 100


def as_json(value: bytes, schema: ValueSchema) -> bytes | None:
    """A value behind the id of its schema, which is this one, as JSON. None: it is none of that."""
    if schema.format == "JSON":
        return value[FRAME_BYTES:]
    shape = _shape(schema)
    install()
    found = decoded(shape, pa.array([value], pa.binary()))
    if found is None or not found.is_typed[0]:
        return None
    names = {column.name: column.source or column.name for column in shape.value_columns}
    fields = {names[name]: array[0].as_py() for name, array in found.columns.items()}
    return json.dumps(fields, default=_text, ensure_ascii=False).encode()


@lru_cache(maxsize=64)
def _shape(schema: ValueSchema) -> TableShape:
    return grown(RAW, [schema], BY_ID, _LAST_ID, frozenset())


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
