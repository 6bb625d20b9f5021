"""The codecs of this version, under the names that shapes have for them."""

from typing import Final

from lakestream.schemas.codecs.avro.codec import CODEC, AvroCodec
from lakestream.schemas.codecs.texts import JSON_TEXT, TEXT, TextCodec
from lakestream.table.parquet.codec import add_codec

_AVRO: Final = AvroCodec()
_TEXT: Final = TextCodec(is_json=False)
_JSON_TEXT: Final = TextCodec(is_json=True)


def install() -> None:
    """As often as one likes."""
    add_codec(CODEC, _AVRO)
    add_codec(TEXT, _TEXT)
    add_codec(JSON_TEXT, _JSON_TEXT)
