"""The Spark job that moves records from the WAL into the tables: tiles → tasks → frontier commits.

Beside `spark_source` the only room that knows Spark. `run` is the service (or one run of it); `SparkTiles` runs tiles
as Spark tasks; `SparkDriver` starts and stops the JVM; `lakestream.pipeline.daemon` is the parent of Spark's Python
workers. Everything that decides is in `frontier`: brokers never wait for this.
"""

from lakestream.frontier.settings import PipelineSettings
from lakestream.pipeline.java import find_java
from lakestream.pipeline.runner import SparkTiles
from lakestream.pipeline.service import Components, Summary, run
from lakestream.pipeline.session import DriverSettings, SparkDriver

__all__ = [
    "Components",
    "DriverSettings",
    "PipelineSettings",
    "SparkDriver",
    "SparkTiles",
    "Summary",
    "find_java",
    "run",
]
