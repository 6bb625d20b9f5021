"""Values of records as columns of their own: what a codec has to do, and which ones this process has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.errors import StorageError
from lakestream.records import Binary
from lakestream.table.shape import TableShape


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """The shape's value columns by name. A row that is not `is_typed` has nulls in all of them: what cannot be decoded
    stays in the stream as bytes. Of one that `is_exact` the codec makes the same bytes again, to the last, whatever
    engine has rewritten its columns since: nothing else of it has to be kept. `schema_ids`: of typed rows, by which
    that is done."""

    columns: Mapping[str, pa.Array]
    is_typed: npt.NDArray[np.bool_]
    is_exact: npt.NDArray[np.bool_]
    schema_ids: pa.Array


class ValueCodec(Protocol):
    """Fills the value columns of every shape that names it, and makes values of them."""

    def decode(self, values: pa.Array, shape: TableShape) -> DecodedValues:
        """`values` are bytes, or null; their memory is used again when the rows are written. No value may make this
        fail."""
        ...

    def encode(
        self, columns: Mapping[str, pa.Array], schema_ids: npt.NDArray[np.int64], raw: Binary, shape: TableShape
    ) -> Binary:
        """The value of each row: by its columns, which have the shape's types, if it has a schema's id, and as `raw`
        has it if that is negative. Where the columns hold no value of the schema, an engine has changed them: there it
        is empty."""
        ...

    def explain(self, value: bytes, shape: TableShape) -> str:
        """Why `decode` leaves this value as bytes, in a sentence for a person. Takes its time: for one at a time. No
        value may make this fail or take for ever."""
        ...


_codecs: Final[dict[str, ValueCodec]] = {}


def add_codec(name: str, codec: ValueCodec) -> None:
    """At a process's start, before any table of a shape that names it is written. A name means one codec for ever."""
    if _codecs.setdefault(name, codec) is not codec:
        raise ValueError(f"there are two codecs {name}")


def decoded(shape: TableShape, values: pa.Array) -> DecodedValues | None:
    """None: the shape keeps values as bytes alone."""
    return _codec(shape).decode(values, shape) if shape.codec else None


def encoded(
    shape: TableShape, columns: Mapping[str, pa.Array], schema_ids: npt.NDArray[np.int64], raw: Binary
) -> Binary:
    """Of a shape with a codec: `ValueCodec.encode`."""
    return _codec(shape).encode(columns, schema_ids, raw, shape)


def explained(shape: TableShape, value: bytes) -> str:
    """Of a shape with a codec: `ValueCodec.explain`."""
    return _codec(shape).explain(value, shape)


def _codec(shape: TableShape) -> ValueCodec:
    codec = _codecs.get(shape.codec)
    if codec is None:
        raise StorageError(f"the codec {shape.codec} of the table's values is not known to this version")
    return codec
