"""`spark.read`: the table and the tail behind it, at one cut."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakestream.errors import RequestError
from lakestream.schemas.codecs import install as install_codecs
from lakestream.spark_source.options import EARLIEST, LATEST, Options, Position
from lakestream.spark_source.reading.filters import RowFilter
from lakestream.spark_source.reading.history import read_history
from lakestream.spark_source.reading.log import Log, LogClient
from lakestream.spark_source.reading.plan import (
    HistoryTask,
    TailTask,
    check_same_topic,
    history_tasks,
    readable,
    resolve,
    tail_tasks,
)
from lakestream.spark_source.reading.tail import read_tail
from lakestream.spark_source.reading.view import TableView, ViewClient
from lakestream.spark_source.schema import wanted_columns
from lakestream.table.reading.ranges import Ranges
from lakestream.table.shape import RAW, TableShape

BATCH_ROWS = 65_536
"""Rows that Spark's JVM holds at once."""


def read_task(
    task: InputPartition | None, columns: Sequence[str], rows: RowFilter, shape: TableShape
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in an executor. None is what Spark makes of a plan without tasks."""
    match task:
        case HistoryTask():
            wanted = (*columns, *rows.columns)
            tables = read_history(
                task.location, task.files, task.deletes, task.ranges, wanted, shape, oldest_ms=task.oldest_ms
            )
        case TailTask():
            install_codecs()
            tables = read_tail(task.topic_id, task.ranges, task.brokers, shape)
        case _:
            return
    for table in tables:
        yield from rows.keep(table).select(columns).to_batches(max_chunksize=BATCH_ROWS)


class TopicReader(DataSourceReader):
    """The view is loaded first, the log's ends after it, so they are never below the view's frontier. What the pipeline
    moves after that is still read from the log: brokers serve it from wherever it is by then. So every offset below the
    ends is read once, from one place."""

    def __init__(self, options: Options, schema: StructType, shape: TableShape = RAW) -> None:
        if options.max_offsets_per_trigger is not None:
            raise RequestError("maxOffsetsPerTrigger is for readStream: use endingOffsets")
        if options.snapshot_id is not None and options.ending is not None:
            raise RequestError("a snapshot ends where its frontier is: leave endingOffsets and endingTimestamp out")
        self._options = options
        self._columns = wanted_columns(schema, shape)
        self._filter = RowFilter(options.filter, shape)
        self._shape = shape

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        logs = LogClient(options.topic, options.kafka)
        topic_id, names = logs.tables()
        names = [options.table] if options.table is not None else names
        view = ViewClient(options.catalog).load(topic_id, names, options.snapshot_id)
        log = logs.look()
        check_same_topic(options.topic, topic_id, log.topic_id)
        bounds = self._filter.bounds
        wanted = bounds.clip(self._wanted(view, log, logs))
        below, above = wanted.cut(view.frontier)
        oldest_ms = bounds.oldest_ms
        if above and oldest_ms is not None:
            first = logs.first_at(log, oldest_ms, above.by_partition)
            above = Ranges.between(
                {partition: max(start, first[partition]) for partition, start, _ in above},
                {partition: end for partition, _, end in above},
            )
        above = readable(above, log, fail_on_data_loss=options.fail_on_data_loss)
        return [*history_tasks(view, below, bounds, options), *tail_tasks(log, above, options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._columns, self._filter, self._shape)

    def _wanted(self, view: TableView, log: Log, logs: LogClient) -> Ranges:
        start, end = self._options.starting or Position(EARLIEST), self._options.ending or Position(LATEST)
        ends = resolve(end, log, _first_at(end, log, logs))
        if self._options.snapshot_id is not None:
            ends = dict(enumerate(view.frontier))
        return Ranges.between(resolve(start, log, _first_at(start, log, logs)), ends)


def topic_shape(options: Options) -> TableShape:
    """Of the topic's table. Raises as `LogClient.tables` and `ViewClient.load` do."""
    topic_id, names = LogClient(options.topic, options.kafka).tables()
    return ViewClient(options.catalog).shape(topic_id, names if options.table is None else [options.table])


def _first_at(position: Position, log: Log, logs: LogClient) -> dict[int, int]:
    return {} if position.timestamp_ms is None else logs.first_at(log, position.timestamp_ms, log.ends)
