"""The codecs of this version, under the names that shapes have for them."""

from typing import Final

from lakestream.schemas.codecs.avro.codec import CODEC, AvroCodec
from lakestream.table.parquet.codec import add_codec

_AVRO: Final = AvroCodec()


def install() -> None:
    """As often as one likes."""
    add_codec(CODEC, _AVRO)
