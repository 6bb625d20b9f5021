"""The small ordered store, and once on top of it the records of heads, extents, topics, brokers and groups."""

from lakestream.metadata.stores.factory import open, place_of

__all__ = ["open", "place_of"]
