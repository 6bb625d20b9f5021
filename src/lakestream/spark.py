"""For Spark sessions: `lakestream.spark.register(spark)`, then `spark.read.format("lakestream")` and its siblings."""

from lakestream.spark_source import LakestreamSource, register

__all__ = ["LakestreamSource", "register"]
