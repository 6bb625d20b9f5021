"""Ids of schemas before values, as Confluent's serializers write them: a zero byte, then the id in four bytes."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.records import Binary
from lakestream.schemas.framing import PREFIX_BYTES, ids_in
from lakestream.table.parquet.arrow import bytes_in, offsets_in, valid_rows
from lakestream.table.shape import TableShape, ValueSchema

__all__ = ["PREFIX_BYTES", "framed_ids", "missing_ids", "plain_ids", "schema_of"]


def framed_ids(values: pa.Array) -> npt.NDArray[np.int64]:
    """The id of each value's schema; -1: it has none."""
    return ids_in(Binary(offsets_in(values), bytes_in(values), valid_rows(values)))


def plain_ids(values: pa.Array, shape: TableShape) -> npt.NDArray[np.int64]:
    """The same for values that have no framing: all are of the schema that the shape names."""
    if shape.plain_schema_id is None:
        return np.full(len(values), -1, np.int64)
    return np.where(valid_rows(values) != 0, shape.plain_schema_id, -1)


def missing_ids(values: pa.Array, shape: TableShape) -> frozenset[int]:
    """Ids of framed values that the shape does not know."""
    found = np.unique(framed_ids(values)).tolist()
    return frozenset(found) - {-1, *(each.schema_id for each in shape.schemas)}


def schema_of(value: bytes, shape: TableShape, *, is_framed: bool) -> ValueSchema | str:
    """The schema of the value, or why it has none that its columns could be read by."""
    schema_id = shape.plain_schema_id
    if is_framed:
        if len(value) < PREFIX_BYTES or value[0] != 0:
            return (
                f"it does not begin with a zero byte and the id of its schema in four bytes, as Confluent's "
                f"serializers write it: {len(value)} bytes that begin with {value[:PREFIX_BYTES].hex(' ') or 'nothing'}"
            )
        schema_id = int.from_bytes(value[1:PREFIX_BYTES], "big")
    if schema_id is None:
        return "the table knows no schema for values that do not name one: register one under the topic's subject"
    found = next((each for each in shape.schemas if each.schema_id == schema_id), None)
    if found is None:
        return f"the table does not know the schema {schema_id} that it names: nobody registered it, or elsewhere"
    if found.trouble:
        return f"values of the schema {schema_id} have no columns in this table: {found.trouble}"
    return found
