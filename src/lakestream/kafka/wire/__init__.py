"""Kafka's wire format: frames, and one reader and one writer per API version."""
