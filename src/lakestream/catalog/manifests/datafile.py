"""A written Parquet file as an Iceberg data file, with the metrics that its writer told. Pure."""

from functools import lru_cache
from typing import Final

from pyiceberg.io.pyarrow import MetricModeTypes, StatisticsCollector, compute_statistics_plan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import StringType
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

from lakestream.catalog.engines.properties import metrics_properties
from lakestream.model import ColumnMetrics, FileMetrics, WrittenFile
from lakestream.table.schema import OFFSET_WINDOW, STREAM_SPEC_ID, UNPARTITIONED

_KEPT_PLANS: Final = 64
_BOUNDED: Final = (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)


def to_iceberg(metadata: TableMetadata, file: WrittenFile) -> DataFile:
    """Raises ValueError if the file cannot be in its spec, or if its writer told nothing of it."""
    return iceberg_file(
        metadata,
        file.path,
        file.metrics,
        record_count=file.record_count,
        size_bytes=file.size_bytes,
        partition=_partition(metadata, file),
        spec_id=file.spec_id,
        order_id=file.order_id,
    )


def iceberg_file(
    metadata: TableMetadata,
    path: str,
    metrics: FileMetrics,
    *,
    record_count: int,
    size_bytes: int,
    partition: Record,
    spec_id: int,
    content: DataFileContent = DataFileContent.DATA,
    order_id: int = 0,
) -> DataFile:
    """Of any table's file. Deleted places keep their bounds uncut: engines tell by them which files they concern.
    Raises ValueError if the writer told nothing of it."""
    if not metrics.columns:
        raise ValueError(f"{path}: its writer did not say what is in it")
    plan = _statistics_plan(metadata.schema().model_dump_json(), tuple(metrics_properties(metadata.properties).items()))
    counts: dict[int, int] = {}
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for column in metrics.columns:
        if column.null_count is None:
            continue
        low, high = column.lower, column.upper
        if content == DataFileContent.DATA:
            kept = plan.get(column.field_id)
            if kept is None or kept.mode.type == MetricModeTypes.NONE:
                continue
            low, high = _bounds(kept, column)
        counts[column.field_id], nulls[column.field_id] = column.value_count, column.null_count
        if low is not None:
            lower[column.field_id] = low
        if high is not None:
            upper[column.field_id] = high
    data_file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=record_count,
        file_size_in_bytes=size_bytes,
        column_sizes={column.field_id: column.size_bytes for column in metrics.columns},
        value_counts=counts,
        null_value_counts=nulls,
        nan_value_counts={},
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=sorted(metrics.split_offsets),
        sort_order_id=order_id or None,
        equality_ids=None,
        key_metadata=None,
    )
    data_file.spec_id = spec_id
    return data_file


def _bounds(kept: StatisticsCollector, column: ColumnMetrics) -> tuple[bytes | None, bytes | None]:
    """Cut to the length that the table asks for, if it is a column that can be cut."""
    if kept.mode.type not in _BOUNDED or column.lower is None or column.upper is None:
        return None, None
    length = kept.mode.length
    if length is None:
        return column.lower, column.upper
    if kept.iceberg_type == StringType():
        high = truncate_upper_bound_text_string(column.upper.decode(), length)
        return column.lower.decode()[:length].encode(), None if high is None else high.encode()
    return column.lower[:length], truncate_upper_bound_binary_string(column.upper, length)


@lru_cache(_KEPT_PLANS)
def _statistics_plan(schema_json: str, metrics: tuple[tuple[str, str], ...]) -> dict[int, StatisticsCollector]:
    """What is kept of each of a table's columns, by its properties. Shared: never change it."""
    return compute_statistics_plan(Schema.model_validate_json(schema_json), dict(metrics))


def _partition(metadata: TableMetadata, file: WrittenFile) -> Record:
    if file.spec_id == UNPARTITIONED.spec_id:
        return Record()
    spec = metadata.specs().get(file.spec_id)
    if file.place and spec is not None and len(file.place) == len(spec.fields):
        return Record(*file.place)
    if file.spec_id != STREAM_SPEC_ID:
        raise ValueError(f"{file.path}: partition spec {file.spec_id} is not one that a stream's table is written in")
    window = file.offset_min // OFFSET_WINDOW
    if file.partition_min != file.partition_max or file.offset_max // OFFSET_WINDOW != window:
        raise ValueError(f"{file.path} spans stream partitions or offset windows: it belongs in an unpartitioned file")
    return Record(file.partition_min, window * OFFSET_WINDOW)
