"""A Protobuf schema with a field of every sort, its values, and what the codec makes of values."""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from lakestream.schemas.codecs.protobuf.codec import CODEC, ProtobufCodec
from lakestream.schemas.shapes import with_schema
from lakestream.table.parquet.codec import DecodedValues
from lakestream.table.shape import RAW, TableShape, ValueSchema
from support.schemas.protobuf import framed, kept_class
from support.schemas.values import Values, binary, values_in

CODECS = ProtobufCodec()
EMPTY = msgspec.structs.replace(RAW, codec=CODEC)


def shape_of(*texts: str, shape: TableShape = EMPTY) -> TableShape:
    for number, text in enumerate(texts, 1):
        shape = with_schema(shape, ValueSchema(number, text, format="PROTOBUF"))
        assert not shape.schemas[-1].trouble, shape.schemas[-1].trouble
    return shape


def proto(text: str, syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; package t; {text}'


def decoded(shape: TableShape, sent: Values, codec: ProtobufCodec = CODECS) -> DecodedValues:
    """Also checks that the arrays are sound, and that what is exact comes back as it was."""
    found = codec.decode(pa.array(sent, pa.binary()), shape)
    for name, array in found.columns.items():
        array.validate(full=True)
        assert len(array) == len(sent), name
    assert not (found.is_exact & ~found.is_typed).any()
    assert again(shape, found, sent, codec) == sent
    return found


def again(shape: TableShape, found: DecodedValues, sent: Values, codec: ProtobufCodec = CODECS) -> Values:
    """What a fetch would give, with bytes kept only where they have to be."""
    left = [None if exact else value for value, exact in zip(sent, found.is_exact, strict=True)]
    ids = np.where(found.is_exact, found.schema_ids.fill_null(-1).to_numpy(zero_copy_only=False), -1)
    return values_in(codec.encode(found.columns, ids.astype(np.int64), binary(left), shape))


def rows(found: DecodedValues) -> list[dict[str, Any]]:
    columns = {name: array.to_pylist() for name, array in found.columns.items()}
    return [{name: column[row] for name, column in columns.items()} for row in range(len(found.is_typed))]


ORDER = proto(
    """
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    message Item { string sku = 1; int32 count = 2; repeated double prices = 3; }
    enum Kind { NEW = 0; OLD = 5; LOST = -1; }
    message Order {
      int64 id = 1;
      string who = 2;
      repeated Item items = 3;
      map<string, int32> counts = 4;
      Kind kind = 5;
      google.protobuf.Timestamp at = 6;
      google.protobuf.Int32Value most = 7;
      oneof either { string text = 8; Item item = 9; }
      optional bool flag = 10;
      uint64 large = 11;
      Order parent = 12;
      repeated sint64 deltas = 13;
      repeated google.protobuf.StringValue notes = 14;
      Empty empty = 15;
      map<int32, Item> by_number = 16;
      uint32 small = 17;
      message Empty {}
    }
    message Cancelled { string why = 1; }
    """
)
ORDERS = shape_of(ORDER)
INDEX = 1
CANCELLED = 2
Order = kept_class(ORDERS.schemas[0], "t.Order")


def order(**fields: Any) -> bytes:
    return framed(1, INDEX, Order(**fields).SerializeToString(deterministic=True))


def raw(data: bytes) -> bytes:
    return framed(1, INDEX, data)
