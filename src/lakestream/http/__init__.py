"""The HTTP door: the Iceberg REST catalog that engines use, health and metrics. It holds no state of its own; tables
and pointers are those of `catalog`, so any number of doors may serve the same tables."""

from lakestream.http.app import create_app

__all__ = ["create_app"]
