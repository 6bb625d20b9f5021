"""Which schemas values are of: the ids before them, or the one that their table's shape names."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.records import Binary
from lakestream.records.framing import framed_ids
from lakestream.records.layout import FRAME_BYTES
from lakestream.table.parquet.arrow import bytes_in, offsets_in, valid_rows
from lakestream.table.shape import TableShape, ValueSchema


def value_ids(values: pa.Array, shape: TableShape, *, is_framed: bool) -> npt.NDArray[np.int64]:
    """The id of each value's schema; -1: it has none. Without framing it is the one that the shape names."""
    if not is_framed:
        return plain_ids(values, shape)
    return framed_ids(Binary(offsets_in(values), bytes_in(values), valid_rows(values)))


def plain_ids(values: pa.Array, shape: TableShape) -> npt.NDArray[np.int64]:
    """Of values without framing."""
    if shape.plain_schema_id is None:
        return np.full(len(values), -1, np.int64)
    return np.where(valid_rows(values) != 0, shape.plain_schema_id, -1)


def schema_of(value: bytes, shape: TableShape, *, is_framed: bool) -> ValueSchema | str:
    """The schema of the value, or why it has none that its columns could be read by."""
    schema_id = shape.plain_schema_id
    if is_framed:
        if len(value) < FRAME_BYTES or value[0] != 0:
            return (
                f"it does not begin with a zero byte and the id of its schema in four bytes, as Confluent's "
                f"serializers write it: {len(value)} bytes that begin with {value[:FRAME_BYTES].hex(' ') or 'nothing'}"
            )
        schema_id = int.from_bytes(value[1:FRAME_BYTES], "big")
    if schema_id is None:
        return "the table knows no schema for values that do not name one: register one under the topic's subject"
    found = next((each for each in shape.schemas if each.schema_id == schema_id), None)
    if found is None:
        return f"the table does not know the schema {schema_id} that it names: nobody registered it, or elsewhere"
    if found.trouble:
        return f"values of the schema {schema_id} have no columns in this table: {found.trouble}"
    return found
