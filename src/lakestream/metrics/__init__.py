"""What each room counts, as Prometheus instruments of one registry that the process passes in. docs/METRICS.md lists
them all.

An observation costs about a microsecond: once per request, flush or object, never per record.
"""

from lakestream.metrics.objects import ObjectMetrics

__all__ = ["ObjectMetrics"]
