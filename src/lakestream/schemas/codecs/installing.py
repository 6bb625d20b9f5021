"""The codecs of this version, under the names that shapes have for them."""

from typing import Final

from lakestream.schemas.codecs.avro.codec import CODEC, PLAIN_CODEC, AvroCodec
from lakestream.schemas.codecs.json.codec import CODEC as JSON_CODEC
from lakestream.schemas.codecs.json.codec import PLAIN_CODEC as PLAIN_JSON_CODEC
from lakestream.schemas.codecs.json.codec import JsonCodec
from lakestream.schemas.codecs.protobuf.codec import CODEC as PROTOBUF
from lakestream.schemas.codecs.protobuf.codec import PLAIN_CODEC as PLAIN_PROTOBUF
from lakestream.schemas.codecs.protobuf.codec import ProtobufCodec
from lakestream.schemas.codecs.texts import JSON_TEXT, TEXT, TextCodec
from lakestream.table.parquet.codec import ValueCodec, add_codec

_CODECS: Final[dict[str, ValueCodec]] = {
    CODEC: AvroCodec(),
    PLAIN_CODEC: AvroCodec(is_framed=False),
    JSON_CODEC: JsonCodec(),
    PLAIN_JSON_CODEC: JsonCodec(is_framed=False),
    PROTOBUF: ProtobufCodec(),
    PLAIN_PROTOBUF: ProtobufCodec(is_framed=False),
    TEXT: TextCodec(is_json=False),
    JSON_TEXT: TextCodec(is_json=True),
}


def install() -> None:
    """As often as one likes."""
    for name, codec in _CODECS.items():
        add_codec(name, codec)
