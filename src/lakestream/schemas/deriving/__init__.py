"""Schemas that columns ask for: the way back of `mapping`."""

from lakestream.schemas.deriving.derive import FORMATS, derive, edited, record_name

__all__ = ["FORMATS", "derive", "edited", "record_name"]
