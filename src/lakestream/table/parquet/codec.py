"""Values of records as columns of their own: what a codec has to do, and which ones this process has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.errors import StorageError
from lakestream.table.shape import TableShape


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """The shape's value columns by name. A row that is not `is_typed` has nulls in all of them: what cannot be decoded
    stays in the stream as bytes."""

    columns: Mapping[str, pa.Array]
    is_typed: npt.NDArray[np.bool_]


class ValueCodec(Protocol):
    """Fills the value columns of every shape that names it."""

    def decode(self, values: pa.Array, shape: TableShape) -> DecodedValues:
        """`values` are bytes, or null; their memory is used again when the rows are written. No value may make this
        fail."""
        ...


_codecs: Final[dict[str, ValueCodec]] = {}


def add_codec(name: str, codec: ValueCodec) -> None:
    """At a process's start, before any table of a shape that names it is written. A name means one codec for ever."""
    if _codecs.setdefault(name, codec) is not codec:
        raise ValueError(f"there are two codecs {name}")


def decoded(shape: TableShape, values: pa.Array) -> DecodedValues | None:
    """None: the shape keeps values as bytes alone."""
    if not shape.codec:
        return None
    codec = _codecs.get(shape.codec)
    if codec is None:
        raise StorageError(f"the codec {shape.codec} of the table's values is not known to this version")
    return codec.decode(values, shape)
