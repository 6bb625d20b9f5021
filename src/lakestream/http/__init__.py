"""The HTTP door: the Iceberg REST catalog that engines use, health and metrics. It holds no state of its own; tables
and pointers are those of `catalog`, so any number of doors may serve the same tables."""

from lakestream.http.app import create_app
from lakestream.http.metrics import Metrics

__all__ = ["Metrics", "create_app"]
