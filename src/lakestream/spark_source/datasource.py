"""The format "lakestream" as Spark's Python data source API knows it."""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lakestream.errors import RequestError
from lakestream.spark_source.options import parse
from lakestream.spark_source.reading.batch import TopicReader, topic_shape
from lakestream.spark_source.reading.streaming import TopicStream
from lakestream.spark_source.schema import spark_schema
from lakestream.spark_source.writing import TopicStreamWriter, TopicWriter
from lakestream.table.shape import RAW, TableShape


class LakestreamSource(DataSource):
    """A topic: its table and its tail to read, its log to append to."""

    @classmethod
    def name(cls) -> str:
        return "lakestream"

    def schema(self) -> StructType:
        return spark_schema(self._shape())

    def _shape(self) -> TableShape:
        """Whoever names no catalog can only write."""
        options = parse(self.options)
        return topic_shape(options) if "uri" in options.catalog else RAW

    def reader(self, schema: StructType) -> TopicReader:
        return TopicReader(parse(self.options), schema, self._shape())

    def streamReader(self, schema: StructType) -> TopicStream:
        return TopicStream(parse(self.options), schema, self._shape())

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        if overwrite:
            raise RequestError('a log is only ever appended to: use mode("append")')
        return TopicWriter(parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        if overwrite:
            raise RequestError('a log is only ever appended to: use outputMode("append")')
        return TopicStreamWriter(parse(self.options), schema)


def register(spark: SparkSession) -> None:
    """Makes the format known to a session."""
    registry: Any = spark.dataSource
    registry.register(LakestreamSource)
