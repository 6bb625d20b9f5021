"""Measurements of ourselves beside a real Kafka. `make bench` runs them all."""
