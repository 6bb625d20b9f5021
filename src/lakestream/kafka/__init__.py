"""The Kafka door: `server` listens, `wire/` frames, reads and writes, `apis/` has one handler file per API.

No other room knows the wire format.
"""
