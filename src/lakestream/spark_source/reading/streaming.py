"""`spark.readStream`: micro-batches between two vectors of offsets, the same rows however often one is run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakestream.errors import OffsetOutOfRange, RequestError
from lakestream.spark_source.options import LATEST, Options, Position
from lakestream.spark_source.reading.batch import read_task
from lakestream.spark_source.reading.filters import RowFilter
from lakestream.spark_source.reading.log import Log, LogClient
from lakestream.spark_source.reading.plan import check_same_topic, history_tasks, lost, readable, resolve, tail_tasks
from lakestream.spark_source.reading.view import ViewClient
from lakestream.spark_source.schema import wanted_columns
from lakestream.table.reading.ranges import Ranges
from lakestream.table.shape import RAW, TableShape

Offset = dict[str, Any]


def to_offset(topic_id: UUID, offsets: Mapping[int, int]) -> Offset:
    """As it stands in a checkpoint. The id makes a topic of the same name another stream."""
    return {"topicId": str(topic_id), "offsets": {str(number): offsets[number] for number in sorted(offsets)}}


def from_offset(offset: Offset) -> tuple[UUID, dict[int, int]]:
    return UUID(offset["topicId"]), {int(number): int(value) for number, value in offset["offsets"].items()}


def limit(starts: Mapping[int, int], ends: Mapping[int, int], most: int) -> dict[int, int]:
    """Ends that lie at most so many offsets after the starts in all, shared out by what each partition has waiting. At
    least one more wherever something waits, so that none starves."""
    waiting = {partition: max(0, end - starts.get(partition, 0)) for partition, end in ends.items()}
    total = sum(waiting.values())
    if total <= most:
        return dict(ends)
    return {
        partition: end - count + (max(1, count * most // total) if count else 0)
        for (partition, end), count in zip(ends.items(), waiting.values(), strict=True)
    }


class TopicStream(DataSourceStreamReader):
    """Small micro-batches are read from the brokers, which have history too; larger ones take what lies below the
    frontier from the table's files."""

    def __init__(self, options: Options, schema: StructType, shape: TableShape = RAW) -> None:
        if options.ending is not None or options.snapshot_id is not None:
            raise RequestError("endingOffsets, endingTimestamp and snapshotId are for spark.read: a stream has no end")
        self._options = options
        self._columns = wanted_columns(schema, shape)
        self._filter = RowFilter(options.filter, shape)
        self._shape = shape
        self._logs: LogClient | None = None
        self._views: ViewClient | None = None
        self._planned: tuple[UUID, dict[int, int]] | None = None

    def initialOffset(self) -> Offset:
        return to_offset(*(self._planned or self._begin(self._look())))

    def latestOffset(self) -> Offset:
        """Where the query is has been told by then, by `partitions` of what it has done, unless it is new: then it
        begins in the very log that is looked at here."""
        log = self._look()
        _, starts = self._planned or self._begin(log)
        most = self._options.max_offsets_per_trigger
        return to_offset(log.topic_id, log.ends if most is None else limit(starts, log.ends, most))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        (topic_id, starts), (end_id, ends) = from_offset(start), from_offset(end)
        log = self._look()
        for found in (end_id, log.topic_id):
            check_same_topic(self._options.topic, topic_id, found)
        self._planned = topic_id, ends
        wanted = self._filter.bounds.clip(
            Ranges.between({partition: starts.get(partition, 0) for partition in ends}, ends)
        )
        if self._options.fail_on_data_loss:
            _check_forward(starts, ends)
        hidden = self._hidden(wanted, log)
        if not hidden and wanted.offset_count <= self._options.max_records_per_partition:
            return tail_tasks(log, wanted, self._options)
        if self._views is None:
            self._views = ViewClient(self._options.catalog)
        _, names = self._log_client().tables()
        view = self._views.load(topic_id, names if self._options.table is None else [self._options.table])
        # Rows leave the table after the log's start has passed them: one that is read after the view tells of all.
        log = self._look()
        self._hidden(wanted, log)
        below, above = wanted.cut(view.frontier)
        above = readable(above, log, fail_on_data_loss=self._options.fail_on_data_loss)
        return [*history_tasks(view, below, self._filter.bounds, self._options), *tail_tasks(log, above, self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._columns, self._filter, self._shape)

    def commit(self, end: Offset) -> None:
        """The checkpoint is Spark's; nothing is kept here."""

    def stop(self) -> None:
        self._logs = self._views = None

    def _hidden(self, wanted: Ranges, log: Log) -> bool:
        """Whether the log's start has passed some of it. `OffsetOutOfRange` unless that is to be passed over."""
        for partition, start, end in wanted:
            if start < log.starts[partition]:
                if self._options.fail_on_data_loss:
                    raise lost(partition, start, min(log.starts[partition], end))
                return True
        return False

    def _begin(self, log: Log) -> tuple[UUID, dict[int, int]]:
        """Earliest is where the log starts: what retention has hidden from consumers is not read without being asked
        for by its offset."""
        start = self._options.starting or Position(LATEST)
        first = {} if start.timestamp_ms is None else self._log_client().first_at(log, start.timestamp_ms, log.ends)
        offsets = {
            partition: offset if start.by_partition.get(partition, -1) >= 0 else max(offset, log.starts[partition])
            for partition, offset in resolve(start, log, first).items()
        }
        self._planned = log.topic_id, offsets
        return self._planned

    def _log_client(self) -> LogClient:
        if self._logs is None:
            self._logs = LogClient(self._options.topic, self._options.kafka)
        return self._logs

    def _look(self) -> Log:
        log = self._log_client().look()
        if self._planned is not None:
            check_same_topic(self._options.topic, self._planned[0], log.topic_id)
        return log


def _check_forward(starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
    for partition, start in starts.items():
        end = ends.get(partition, 0)
        if end < start:
            raise OffsetOutOfRange(
                f"the query has read partition {partition} up to {start}, and its log ends at {end}: the cluster is "
                "not what it was. To go on with what is there, set failOnDataLoss to false"
            )
