"""What each room counts, as Prometheus instruments of one registry that the process passes in. docs/METRICS.md lists
them all.

An observation costs about a microsecond: once per request, flush or object, never per record.
"""

from lakestream.metrics.http import HttpMetrics
from lakestream.metrics.inserts import InsertMetrics
from lakestream.metrics.kafka import KafkaMetrics
from lakestream.metrics.objects import ObjectMetrics
from lakestream.metrics.pipeline import PipelineMetrics
from lakestream.metrics.queries import QueryMetrics
from lakestream.metrics.reading import ReadMetrics
from lakestream.metrics.registry import new_registry
from lakestream.metrics.rest import RestMetrics
from lakestream.metrics.stream import StreamMetrics

__all__ = [
    "HttpMetrics",
    "InsertMetrics",
    "KafkaMetrics",
    "ObjectMetrics",
    "PipelineMetrics",
    "QueryMetrics",
    "ReadMetrics",
    "RestMetrics",
    "StreamMetrics",
    "new_registry",
]
