"""Which snapshots are believed when they say that rows are as they were appended."""

import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from lakestream.catalog.rules.lineage import INTACT_PROPERTY, intact_in, intact_summary
from lakestream.table.schema import FRONTIER_PROPERTY

OURS = intact_summary(7, (3, 0)) | {FRONTIER_PROPERTY: "5,2"}


def snapshot(summary: dict[str, str], snapshot_id: int = 7) -> Snapshot:
    said = Summary(Operation.APPEND, **summary)
    return Snapshot(snapshot_id=snapshot_id, timestamp_ms=1, manifest_list="file:///list.avro", summary=said)


def test_our_own_snapshot_is_believed() -> None:
    assert intact_in(snapshot(OURS), (5, 2)) == (3, 0)


@pytest.mark.parametrize(
    ("said", "snapshot_id"),
    [
        pytest.param(OURS, 8, id="another engine copied the summary"),
        pytest.param({FRONTIER_PROPERTY: "5,2"}, 7, id="says nothing"),
        pytest.param(OURS | {INTACT_PROPERTY: "0,0 00000000"}, 7, id="wrong checksum"),
        pytest.param(OURS | {INTACT_PROPERTY: ""}, 7, id="empty"),
        pytest.param(OURS | {FRONTIER_PROPERTY: "4,2"}, 7, id="rolled back to"),
        pytest.param(OURS | {FRONTIER_PROPERTY: "x"}, 7, id="vector is no vector"),
    ],
)
def test_any_other_makes_everything_below_the_frontier_doubtful(said: dict[str, str], snapshot_id: int) -> None:
    assert intact_in(snapshot(said, snapshot_id), (5, 2)) == (5, 2)


def test_a_table_without_snapshot_has_no_rows_to_doubt() -> None:
    assert intact_in(None, (0, 0)) == (0, 0)
