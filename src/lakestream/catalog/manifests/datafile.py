"""A written Parquet file as an Iceberg data file, with the metrics of its own footer. Blocking."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputStream
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from lakestream.catalog.engines.properties import metrics_properties
from lakestream.catalog.threads import side_by_side
from lakestream.errors import CorruptObject, ObjectMissing, Unavailable
from lakestream.model import WrittenFile
from lakestream.table.parquet.seal import check_footer
from lakestream.table.schema import OFFSET_WINDOW, STREAM_SPEC_ID, UNPARTITIONED

_KEPT_PLANS: Final = 64
_TAIL_BYTES: Final = 64 * 1024
_MAGIC_BYTES: Final = 4
_END_BYTES: Final = 8
"""Length of the footer and magic."""


def all_to_iceberg(io: FileIO, metadata: TableMetadata, files: Sequence[WrittenFile]) -> list[DataFile]:
    """Each as `to_iceberg` has it, several at once: a distant store takes its time for every footer."""
    return side_by_side(lambda file: to_iceberg(io, metadata, file), files)


def to_iceberg(io: FileIO, metadata: TableMetadata, file: WrittenFile) -> DataFile:
    """Raises ValueError if the file cannot be in its spec, `CorruptObject` if it is not what its writer said."""
    partition = _partition(file)
    try:
        with io.new_input(file.path).open() as stream:
            size_bytes, data = _footer_bytes(stream)
        check_footer(file.path, data)
        footer = pq.read_metadata(pa.BufferReader(data))
    except FileNotFoundError as error:
        raise ObjectMissing(f"data file {file.path} is missing") from error
    except pa.ArrowInvalid as error:
        raise CorruptObject(f"data file {file.path} is no Parquet file: {error}") from error
    except OSError as error:
        raise Unavailable(f"data file {file.path} cannot be read now: {error}") from error
    if (footer.num_rows, size_bytes) != (file.record_count, file.size_bytes):
        raise CorruptObject(
            f"data file {file.path} has {footer.num_rows} records in {size_bytes} bytes,"
            f" its writer said {file.record_count} in {file.size_bytes}"
        )
    metrics = tuple(metrics_properties(metadata.properties).items())
    columns, usual = _statistics_plan(metadata.schema().model_dump_json(), metrics)
    plan = dict(usual)
    for group in range(footer.num_row_groups):
        for position in range(footer.num_columns):
            column = footer.row_group(group).column(position)
            if not column.is_stats_set:
                field_id = columns[column.path_in_schema]
                plan[field_id] = replace(plan[field_id], mode=MetricsMode(MetricModeTypes.NONE))
    statistics = data_file_statistics_from_parquet_metadata(footer, plan, columns)
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=size_bytes,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    data_file.spec_id = file.spec_id
    return data_file


@lru_cache(_KEPT_PLANS)
def _statistics_plan(
    schema_json: str, metrics: tuple[tuple[str, str], ...]
) -> tuple[dict[str, int], dict[int, StatisticsCollector]]:
    """The ids of a table's columns by their paths, and what is kept of each, by its properties. Shared: never change
    them."""
    schema = Schema.model_validate_json(schema_json)
    return parquet_path_to_id_mapping(schema), compute_statistics_plan(schema, dict(metrics))


def _footer_bytes(stream: InputStream) -> tuple[int, bytes]:
    """The file's size, and its footer with its length and the magic behind it, as a rule in one read. What cannot be a
    footer is left to the parser."""
    size_bytes = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size_bytes - _TAIL_BYTES))
    tail = stream.read()
    footer_bytes = int.from_bytes(tail[-_END_BYTES:-_MAGIC_BYTES], "little") + _END_BYTES
    if len(tail) < min(footer_bytes, size_bytes):
        stream.seek(max(0, size_bytes - footer_bytes))
        tail = stream.read()
    return size_bytes, tail[-footer_bytes:]


def _partition(file: WrittenFile) -> Record:
    if file.spec_id == UNPARTITIONED.spec_id:
        return Record()
    if file.spec_id != STREAM_SPEC_ID:
        raise ValueError(f"{file.path}: partition spec {file.spec_id} is not one that a stream's table is written in")
    window = file.offset_min // OFFSET_WINDOW
    if file.partition_min != file.partition_max or file.offset_max // OFFSET_WINDOW != window:
        raise ValueError(f"{file.path} spans stream partitions or offset windows: it belongs in an unpartitioned file")
    return Record(file.partition_min, window * OFFSET_WINDOW)
