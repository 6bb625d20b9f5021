"""What a writer tells of its file is what PyIceberg finds in the footer, and workers hand it on."""

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from support.properties import examples
from support.tables import foreign as lake
from support.tables.shapes import ITEMS

from lakestream.catalog.engines.properties import metrics_properties
from lakestream.catalog.manifests.datafile import to_iceberg
from lakestream.frontier.moving.tiles.tile import TileOutcome, pack, unpack_outcome
from lakestream.model import NO_METRICS, WrittenFile
from lakestream.table.parquet.arrow import canonical
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.schema import iceberg_schema, stream_properties
from lakestream.table.shape import RAW, TableShape

keys = st.none() | st.sampled_from([b"", b"k" * 40, b"\xff" * 40, b"\x00", b"k" * 16, b"a"])
modes = st.sampled_from(["none", "counts", "full", "truncate(3)", "truncate(16)"])


def written(groups: list[list[bytes | None]], shape: TableShape) -> tuple[bytes, WrittenFile]:
    """A row group of each list of keys."""
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, shape)
    first = 0
    for group in groups:
        rows = lake.table(range(first, first + len(group)))
        rows = rows.set_column(5, rows.schema.field(5), pa.array(group, pa.binary()))
        writer.write_rows(canonical(rows, shape.names, shape))
        first += len(group)
    file = writer.close().written("file:///t.parquet", 0)
    return sink.getvalue(), file


def table_of(shape: TableShape, properties: dict[str, str]) -> Any:
    return SimpleNamespace(schema=lambda: iceberg_schema(shape), properties=stream_properties(shape) | properties)


def by_pyiceberg(data: bytes, metadata: Any) -> dict[str, Any]:
    """Columns without statistics count as not wanted."""
    footer = pq.read_metadata(io.BytesIO(data))
    columns = parquet_path_to_id_mapping(metadata.schema())
    plan = compute_statistics_plan(metadata.schema(), metrics_properties(metadata.properties))
    for position in range(footer.num_columns):
        column = footer.row_group(0).column(position)
        if not column.is_stats_set:
            field_id = columns[column.path_in_schema]
            plan[field_id] = replace(plan[field_id], mode=MetricsMode(MetricModeTypes.NONE))
    return data_file_statistics_from_parquet_metadata(footer, plan, columns).to_serialized_dict()


@examples(100)
@given(
    groups=st.lists(st.lists(keys, min_size=1, max_size=8), min_size=1, max_size=3),
    shape=st.sampled_from([RAW, ITEMS]),
    default=modes,
    of_keys=modes,
)
def test_they_are_what_pyiceberg_finds(
    groups: list[list[bytes | None]], shape: TableShape, default: str, of_keys: str
) -> None:
    data, file = written(groups, shape)
    asked = {"write.metadata.metrics.default": default, "write.metadata.metrics.column._key": of_keys}
    metadata = table_of(shape, asked)
    made = to_iceberg(metadata, file)
    want = by_pyiceberg(data, metadata)
    assert {name: getattr(made, name) for name in want} == want
    assert (made.file_size_in_bytes, made.record_count) == (len(data), sum(map(len, groups)))
    outcome = TileOutcome((file,))
    assert unpack_outcome(pack(outcome)) == outcome


def test_a_row_group_without_bounds_leaves_the_file_without() -> None:
    """A bound of the others alone would be too narrow. A row group without keys takes nothing away."""
    long = b"z" * 5000
    for groups, bounds in (([[b"b"], [long], [b"c"]], None), ([[b"b"], [None], [b"c"]], (b"b", b"c"))):
        _, file = written(groups, RAW)
        made = to_iceberg(table_of(RAW, {}), file)
        found = (made.lower_bounds.get(6), made.upper_bounds.get(6))
        assert found == (bounds or (None, None))
        assert made.null_value_counts[6] == sum(key is None for group in groups for key in group)


def test_a_file_of_which_nothing_was_told_is_not_committed() -> None:
    _, file = written([[b"k"]], RAW)
    with pytest.raises(ValueError, match="did not say"):
        to_iceberg(table_of(RAW, {}), replace(file, metrics=NO_METRICS))
