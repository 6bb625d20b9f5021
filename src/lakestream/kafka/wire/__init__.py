"""Kafka's wire format: frames, one reader and one writer per API version, and the client's end of Fetch."""
