"""Requests that are put to us and to a real Apache Kafka, and what may differ in the answers."""
