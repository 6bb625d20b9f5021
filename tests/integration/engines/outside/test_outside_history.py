"""What main of a stream's table has been, as engines make history: several snapshots in a commit, other branches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate
from support.clients.outsider import on
from support.tables.files import Door, open_door

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with open_door(tmp_path) as opened:
        opened.create()
        opened.append(6)
        yield opened


@pytest.fixture
def rest(door: Door) -> Iterator[RestCatalog]:
    catalog = RestCatalog("lake", uri=door.uri)
    yield catalog
    catalog.close()


def offsets(rest: RestCatalog) -> list[int]:
    found: list[int] = rest.load_table("default.orders").scan().to_arrow()["_offset"].to_pylist()
    return sorted(found)


def test_main_never_was_what_a_commit_passed_through(door: Door, rest: RestCatalog) -> None:
    table = rest.load_table("default.orders")
    with table.transaction() as change:
        change.append(table.scan(row_filter="_offset = 3").to_arrow())
        change.delete("_offset = 3")
    assert offsets(rest) == [0, 1, 2, 4, 5]
    history = rest.load_table("default.orders").metadata
    named = {entry.snapshot_id for entry in history.snapshot_log}
    passed = [snapshot for snapshot in history.snapshots if snapshot.snapshot_id not in named]
    assert passed
    assert all(snapshot.timestamp_ms <= history.snapshot_log[-1].timestamp_ms for snapshot in passed)
    for snapshot in passed:
        with pytest.raises(ForbiddenError, match="rows would be a"):
            rest.load_table("default.orders").manage_snapshots().set_current_snapshot(snapshot.snapshot_id).commit()
    assert offsets(rest) == [0, 1, 2, 4, 5]
    before = rest.load_table("default.orders").metadata.snapshot_log[-2].snapshot_id
    rest.load_table("default.orders").manage_snapshots().set_current_snapshot(before).commit()
    assert offsets(rest) == [0, 1, 2, 3, 4, 5]
    assert door.append(1).frontier == (7,)


def test_a_commit_to_a_branch_is_tried_again_when_main_has_moved(door: Door, rest: RestCatalog) -> None:
    table = rest.load_table("default.orders")
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, "dev").commit()
    table = rest.load_table("default.orders")
    parent = table.metadata.current_snapshot()
    assert parent is not None
    door.append(1)
    late = parent.model_copy(
        update={
            "snapshot_id": 1,
            "parent_snapshot_id": parent.snapshot_id,
            "sequence_number": table.metadata.next_sequence_number(),
        }
    )
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": "dev", "snapshot-id": parent.snapshot_id}),
    )
    with pytest.raises(CommitFailedException, match="somebody else has committed meanwhile"):
        rest.commit_table(table, requirements, (AddSnapshotUpdate(snapshot=late), on("dev", 1)))
    number = rest.load_table("default.orders").metadata.next_sequence_number()
    again = late.model_copy(update={"sequence_number": number, "timestamp_ms": late.timestamp_ms + 60_000})
    rest.commit_table(table, requirements, (AddSnapshotUpdate(snapshot=again), on("dev", 1)))
    assert rest.load_table("default.orders").metadata.refs["dev"].snapshot_id == 1
    assert door.append(1).frontier == (8,)


def same_rows(table: Table, **changed: Any) -> tuple[AddSnapshotUpdate, SetSnapshotRefUpdate]:
    """A snapshot on main with the rows that main has."""
    parent = table.metadata.current_snapshot()
    assert parent is not None
    given = {
        "snapshot_id": 1,
        "parent_snapshot_id": parent.snapshot_id,
        "sequence_number": table.metadata.next_sequence_number(),
        "timestamp_ms": table.metadata.last_updated_ms + 1,
    }
    return AddSnapshotUpdate(snapshot=parent.model_copy(update=given | changed)), on("main", 1)


def test_nothing_that_an_engine_says_of_its_snapshot_stops_the_next(door: Door, rest: RestCatalog) -> None:
    table = rest.load_table("default.orders")
    said = {"total-records": "many", "total-data-files": "-3", "total-files-size": "", "added-records": "some"}
    rest.commit_table(table, (), same_rows(table, summary=Summary(Operation.REPLACE, **said)))
    assert door.append(2).frontier == (8,)
    assert offsets(rest) == [*range(8)]
    newest = rest.load_table("default.orders").metadata.current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary["added-records"] == "2"


def test_a_manifest_list_that_is_none_is_refused(door: Door, rest: RestCatalog) -> None:
    table = rest.load_table("default.orders")
    with pytest.raises(ForbiddenError, match=r"cannot be judged: manifest list .* does not parse"):
        rest.commit_table(table, (), same_rows(table, manifest_list=table.metadata_location))
    assert door.append(2).frontier == (8,)
