"""Properties of tables as their owners write them."""

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import compute_statistics_plan

from lakestream.catalog.engines.properties import is_on, metadata_folder, metrics_properties
from lakestream.table.schema import iceberg_schema, stream_properties
from lakestream.table.shape import RAW

NAMES = ("default", *(f"column.{name}" for name in ("_offset", "_stream_partition", "_timestamp", "_value", "_key")))
MODES = ("none", "counts", "full", "truncate(0)", "truncate(8)", "truncate(x)", "truncate", "most", "", " FULL ")


@given(st.dictionaries(st.sampled_from([f"write.metadata.metrics.{name}" for name in NAMES]), st.sampled_from(MODES)))
def test_whatever_is_asked_for_files_of_a_stream_have_the_bounds_of_places(asked: dict[str, str]) -> None:
    places = {name: compute_statistics_plan(iceberg_schema(RAW), stream_properties(RAW))[name] for name in (1, 2, 3)}
    plan = compute_statistics_plan(iceberg_schema(RAW), metrics_properties(stream_properties(RAW) | asked))
    assert {name: plan[name] for name in (1, 2, 3)} == places


def test_what_an_owner_asks_for_of_other_columns_is_done() -> None:
    asked = {"write.metadata.metrics.default": "counts", "write.metadata.metrics.column._key": "full", "other": "x"}
    plan = compute_statistics_plan(iceberg_schema(RAW), metrics_properties(asked))
    modes = {plan[column].column_name: plan[column].mode.type.name for column in plan}
    assert (modes["_value"], modes["_key"], modes["_offset"]) == ("COUNTS", "FULL", "FULL")


@given(st.sampled_from(["", "maybe", "TRUE", "1", "no", "-", "true "]))
def test_a_flag_is_read_whatever_it_says(text: str) -> None:
    assert is_on({"flag": text}, "flag", default=True) in (True, False)


def test_flags() -> None:
    assert is_on({}, "flag", default=True)
    assert not is_on({}, "flag", default=False)
    assert is_on({"flag": "true"}, "flag", default=False)
    assert not is_on({"flag": "FALSE"}, "flag", default=True)
    assert not is_on({"flag": "maybe"}, "flag", default=True)


def test_metadata_goes_where_the_table_says() -> None:
    assert metadata_folder("s3://b/t", {}) == "s3://b/t/metadata"
    assert metadata_folder("s3://b/t", {"write.metadata.path": "s3://b/t/_iceberg/"}) == "s3://b/t/_iceberg"
