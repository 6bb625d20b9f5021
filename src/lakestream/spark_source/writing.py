"""`write` and `writeStream` to a topic: rows become records through librdkafka, at least once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakestream.errors import RequestError, Unavailable
from lakestream.spark_source.options import Options
from lakestream.spark_source.schema import SPARK_SCHEMA

_KEY, _VALUE, _HEADERS, _PARTITION, _TIMESTAMP = "key", "value", "headers", "partition", "timestamp"
_BYTES: Final = frozenset({"binary", "string"})
_TYPES: Final[Mapping[str, frozenset[str]]] = {
    _KEY: _BYTES,
    _VALUE: _BYTES,
    _HEADERS: frozenset({"array<struct<key:string,value:binary>>"}),
    _PARTITION: frozenset({"int"}),
    _TIMESTAMP: frozenset({"timestamp"}),
}
_TABLE_NAMES: Final = {"_key": _KEY, "_value": _VALUE, "_headers": _HEADERS, "_timestamp": _TIMESTAMP} | {
    "_stream_partition": _PARTITION
}
_IGNORED: Final = frozenset(SPARK_SCHEMA.fieldNames()) - _TABLE_NAMES.keys()
_PRODUCER: Final = {"enable.idempotence": "true", "linger.ms": "20", "log_level": "2"}
_FLUSH_S: Final = 120.0
_QUEUE_FULL_WAIT_S: Final = 1.0


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    record_count: int


def columns_of(schema: StructType) -> dict[str, str]:
    """For each part of a record the column that it comes from. `RequestError` if there is no value, or a column that no
    record has room for."""
    found: dict[str, str] = {}
    for field in schema.fields:
        part = _TABLE_NAMES.get(field.name, field.name)
        kind = field.dataType.simpleString()
        if field.name in _IGNORED:
            continue
        if part not in _TYPES:
            known = ", ".join((*_TYPES, *_TABLE_NAMES))
            raise RequestError(f"column {field.name} has no place in a record: select only {known}")
        if part in found:
            raise RequestError(f"columns {found[part]} and {field.name} are both the record's {part}: select one")
        if kind not in _TYPES[part]:
            raise RequestError(f"column {field.name} is {kind}: a record's {part} is {' or '.join(_TYPES[part])}")
        found[part] = field.name
    if _VALUE not in found:
        raise RequestError("a record needs a value: name a column value or _value (null makes a tombstone)")
    return found


class _TopicWriter:
    """Each task has a producer of its own, idempotent while it lives."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._topic = options.topic
        self._settings = {**_PRODUCER, **options.kafka}
        self._columns = columns_of(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Returns when every record is acknowledged. `Unavailable` if one was not: Spark runs the task again, and what
        was acknowledged is then written twice."""
        failures: list[str] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error.str())

        producer = Producer(self._settings)
        count = 0
        for batch in iterator:
            for record in _records(batch, self._columns):
                _produce(producer, self._topic, record, delivered)
                count += 1
            producer.poll(0)
            if failures:
                break
        left = producer.flush(_FLUSH_S)
        if failures or left:
            reason = failures[0] if failures else f"{left} records were not acknowledged in {_FLUSH_S:.0f} s"
            raise Unavailable(f"topic {self._topic} did not take every record of this task: {reason}")
        return Written(count)


class TopicWriter(_TopicWriter, DataSourceArrowWriter):
    """For `write`."""


class TopicStreamWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """For `writeStream`."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Records are in the log when their task ends."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A log takes nothing back."""


def _records(batch: pa.RecordBatch, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The arguments of `produce`."""
    parts = {part: _values(part, batch.column(name)) for part, name in columns.items()}
    for values in zip(*parts.values(), strict=True):
        yield {part: value for part, value in zip(parts, values, strict=True) if value is not None}


def _values(part: str, column: pa.Array) -> list[Any]:
    if part == _TIMESTAMP:
        column = pc.cast(column, pa.timestamp("ms", tz="UTC"), safe=False).view(pa.int64())
    if part == _HEADERS:
        return [
            None if headers is None else [(header["key"], header["value"]) for header in headers]
            for headers in column.to_pylist()
        ]
    values: list[Any] = column.to_pylist()
    return values


def _produce(producer: Producer, topic: str, record: dict[str, Any], delivered: Callable[[Any, Any], None]) -> None:
    while True:
        try:
            producer.produce(topic, on_delivery=delivered, **record)
        except BufferError:
            producer.poll(_QUEUE_FULL_WAIT_S)
        except KafkaException as error:
            raise Unavailable(f"topic {topic} does not take records: {error.args[0].str()}") from error
        else:
            return
