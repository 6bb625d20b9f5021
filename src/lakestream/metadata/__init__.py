"""The small ordered store, and once on top of it the records of heads, extents, topics, brokers and groups."""
