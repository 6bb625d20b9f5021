"""Avro, JSON Schema and Protobuf: what each makes of a schema's text, and what one reads of another's data."""
