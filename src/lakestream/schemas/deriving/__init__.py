"""Schemas that columns ask for: the way back of `mapping`."""

from lakestream.schemas.deriving.derive import FORMATS, codec_of, derive, edited, record_name

__all__ = ["FORMATS", "codec_of", "derive", "edited", "record_name"]
