"""Schemas of values: the `registry` that keeps them; what they say (`avro`), the columns they become (`mapping`), and
bytes to columns and back (`codecs`)."""
