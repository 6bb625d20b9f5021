"""Topics as a Spark data source: `spark.read`, `readStream`, `write` and `writeStream` with format "lakestream".

Everything goes through the public doors, Kafka and the Iceberg REST catalog; only table files are read from the bucket.
"""

from lakestream.spark_source.datasource import LakestreamSource, register

__all__ = ["LakestreamSource", "register"]
